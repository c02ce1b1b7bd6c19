// Soft caps of attention scores and of logits: x becomes cap tanh(x / cap).
// Source: Gemma 2 (Gemma Team 2024), section 2.
#pragma once

#include "simd/vec.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

struct SoftCap {
  float cap;
  float inverse;
  MESHPLAN_INLINE Vec value(Vec x) const { return tanh(x * inverse) * cap; }
  /// Derivative where the capped value is `capped`.
  MESHPLAN_INLINE Vec slope(Vec capped) const {
    const Vec t = capped * inverse;
    return 1.0F - t * t;
  }
};

MESHPLAN_INLINE SoftCap soft_cap(float cap) {
  return {cap, 1.0F / cap};
}

struct NoCap {
  MESHPLAN_INLINE Vec value(Vec x) const { return x; }
  MESHPLAN_INLINE Vec slope(Vec /*capped*/) const { return splat(1.0F); }
};

/// Calls body with what caps: a SoftCap, or a NoCap for 0.
template <class Body>
MESHPLAN_INLINE void with_cap(float softcap, Body body) {
  if (softcap > 0.0F)
    body(soft_cap(softcap));
  else
    body(NoCap{});
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
