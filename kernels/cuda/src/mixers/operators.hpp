#pragma once

#include "device/context.hpp"
#include "kernels/mixers/gated_delta.hpp"
#include "kernels/mixers/gated_rms_norm.hpp"
#include "kernels/mixers/short_convolution.hpp"
#include "kernels/mixers/ssd.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const ShortConvolutionForward& op);
void enqueue(const Context& context, const ShortConvolutionBackward& op);
void enqueue(const Context& context, const GatedRmsNormForward& op);
void enqueue(const Context& context, const GatedRmsNormBackward& op);
void enqueue(const Context& context, const SsdForward& op);
void enqueue(const Context& context, const SsdBackward& op);
void enqueue(const Context& context, const GatedDeltaForward& op);
void enqueue(const Context& context, const GatedDeltaBackward& op);

std::int64_t scratch_bytes(const ShortConvolutionBackward& op);
std::int64_t scratch_bytes(const GatedRmsNormBackward& op);
std::int64_t scratch_bytes(const SsdForward& op);
std::int64_t scratch_bytes(const SsdBackward& op);
std::int64_t scratch_bytes(const GatedDeltaForward& op);
std::int64_t scratch_bytes(const GatedDeltaBackward& op);

}  // namespace meshplan::kernels::cuda
