// Soft caps of attention scores and of logits: x becomes cap tanh(x / cap); 0 = none.
// Source: Gemma 2 (Gemma Team 2024), section 2.
#pragma once

namespace meshplan::kernels::cuda {

__device__ inline float soft_capped(float x, float cap) {
  return cap > 0.0F ? cap * tanhf(x / cap) : x;
}
/// Derivative where the capped value is `capped`.
__device__ inline float soft_cap_slope(float capped, float cap) {
  if (cap <= 0.0F) return 1.0F;
  const float t = capped / cap;
  return 1.0F - t * t;
}

}  // namespace meshplan::kernels::cuda
