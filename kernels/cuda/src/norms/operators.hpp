#pragma once

#include "device/context.hpp"
#include "kernels/norms/head_rms_norm.hpp"
#include "kernels/norms/layer_norm.hpp"
#include "kernels/norms/rms_norm.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const RmsNormForward& op);
void enqueue(const Context& context, const RmsNormBackward& op);
void enqueue(const Context& context, const LayerNormForward& op);
void enqueue(const Context& context, const LayerNormBackward& op);
void enqueue(const Context& context, const HeadRmsNormForward& op);
void enqueue(const Context& context, const HeadRmsNormBackward& op);

std::int64_t scratch_bytes(const RmsNormBackward& op);
std::int64_t scratch_bytes(const LayerNormBackward& op);
std::int64_t scratch_bytes(const HeadRmsNormBackward& op);

}  // namespace meshplan::kernels::cuda
