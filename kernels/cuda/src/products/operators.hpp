// Matrix products on cuBLASLt are those of LinearKernels (products/linear.hpp).
#pragma once

#include "device/context.hpp"
#include "kernels/products/float8.hpp"
#include "kernels/products/grouped_linear.hpp"

namespace meshplan::kernels::cuda {

/// The offsets are read on the device, so that the host need not wait for the
/// router, and no plan depends on how many rows a group has.
void enqueue(const Context& context, const GroupedLinearForward& op);
void enqueue(const Context& context, const GroupedLinearInputGrad& op);
void enqueue(const Context& context, const GroupedLinearWeightGrad& op);

void enqueue(const Context& context, const QuantizeFloat8& op);

std::int64_t scratch_bytes(const QuantizeFloat8& op);

}  // namespace meshplan::kernels::cuda
