#pragma once

#include "device/context.hpp"
#include "kernels/norms/head_rms_norm.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const HeadRmsNormForward& op);
void enqueue(const Context& context, const HeadRmsNormBackward& op);

std::int64_t scratch_bytes(const HeadRmsNormBackward& op);

}  // namespace meshplan::kernels::cuda
