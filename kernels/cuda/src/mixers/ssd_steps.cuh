// Steps of a state-space mixer.
#pragma once

#include "device/device.cuh"
#include "kernels/mixers/ssd.hpp"

namespace meshplan::kernels::cuda {

template <class T, class Op>
__device__ float raw_step(const Op& op, std::int64_t row, std::int64_t head) {
  return to_float(static_cast<const T*>(op.dt)[row * op.dt_stride + head]) +
         to_float(static_cast<const T*>(op.dt_bias)[head]);
}

__device__ inline float softplus(float x) {
  return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x)));
}

__device__ inline float limited_step(const StepLimits& limits, float step) {
  return fminf(fmaxf(step, limits.lower), limits.upper);
}

/// Of dt' with respect to dt.
__device__ inline float step_slope(const StepLimits& limits, float raw) {
  const float step = softplus(raw);
  return limited_step(limits, step) == step ? 1.0F / (1.0F + expf(-raw)) : 0.0F;
}

}  // namespace meshplan::kernels::cuda
