#pragma once

#include "device/context.hpp"
#include "kernels/norms/head_rms_norm.hpp"
#include "kernels/norms/layer_norm.hpp"
#include "kernels/norms/rms_norm.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const RmsNormForward& op);
void run(const Context& context, const RmsNormBackward& op);
void run(const Context& context, const LayerNormForward& op);
void run(const Context& context, const LayerNormBackward& op);
void run(const Context& context, const HeadRmsNormForward& op);
void run(const Context& context, const HeadRmsNormBackward& op);

}  // namespace meshplan::kernels::cpu
