#pragma once

#include "device/context.hpp"
#include "kernels/mixers/gated_delta.hpp"
#include "kernels/mixers/gated_rms_norm.hpp"
#include "kernels/mixers/short_convolution.hpp"
#include "kernels/mixers/ssd.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const ShortConvolutionForward& op);
void run(const Context& context, const ShortConvolutionBackward& op);
void run(const Context& context, const GatedRmsNormForward& op);
void run(const Context& context, const GatedRmsNormBackward& op);
void run(const Context& context, const SsdForward& op);
void run(const Context& context, const SsdBackward& op);
void run(const Context& context, const GatedDeltaForward& op);
void run(const Context& context, const GatedDeltaBackward& op);

std::int64_t scratch_bytes(const Context& context, const SsdForward& op);
std::int64_t scratch_bytes(const Context& context, const SsdBackward& op);
std::int64_t scratch_bytes(const Context& context, const GatedDeltaForward& op);
std::int64_t scratch_bytes(const Context& context, const GatedDeltaBackward& op);

}  // namespace meshplan::kernels::cpu
