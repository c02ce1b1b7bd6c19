#pragma once

#include "device/context.hpp"
#include "kernels/products/float8.hpp"
#include "kernels/products/grouped_linear.hpp"
#include "kernels/products/linear.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const LinearForward& op);
void run(const Context& context, const LinearInputGrad& op);
void run(const Context& context, const LinearWeightGrad& op);
void run(const Context& context, const GroupedLinearForward& op);
void run(const Context& context, const GroupedLinearInputGrad& op);
void run(const Context& context, const GroupedLinearWeightGrad& op);
void run(const Context& context, const QuantizeFloat8& op);
void run(const Context& context, const ScaledProduct& op);

std::int64_t scratch_bytes(const Context& context, const LinearForward& op);
std::int64_t scratch_bytes(const Context& context, const LinearInputGrad& op);
std::int64_t scratch_bytes(const Context& context, const LinearWeightGrad& op);
std::int64_t scratch_bytes(const Context& context, const GroupedLinearForward& op);
std::int64_t scratch_bytes(const Context& context, const GroupedLinearInputGrad& op);
std::int64_t scratch_bytes(const Context& context, const GroupedLinearWeightGrad& op);
std::int64_t scratch_bytes(const Context& context, const ScaledProduct& op);

}  // namespace meshplan::kernels::cpu
