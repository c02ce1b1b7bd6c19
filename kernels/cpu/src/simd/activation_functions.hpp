#pragma once

#include "kernels/elementwise/activation.hpp"
#include "simd/vec.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

/// Value and derivative of an activation at x; what is not used is not computed.
struct ValueAndSlope {
  Vec value;
  Vec slope;
};

template <ActivationKind kind>
MESHPLAN_INLINE ValueAndSlope evaluate(Vec x) {
  if constexpr (kind == ActivationKind::Silu) {
    const Vec s = sigmoid(x);
    return {x * s, s * (1.0F + x * (1.0F - s))};
  } else if constexpr (kind == ActivationKind::Gelu) {
    const NormalDistribution normal = normal_distribution(x);
    return {x * normal.cumulative, normal.cumulative + x * normal.density};
  } else if constexpr (kind == ActivationKind::GeluTanh) {
    constexpr float kScale = 0.797884561F;  // sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    // (1 + tanh(u)) / 2 = sigmoid(2 u) keeps the negative tail accurate
    const Vec s = sigmoid(2.0F * kScale * (x + kCubic * x * x * x));
    const Vec du = kScale * (1.0F + 3.0F * kCubic * x * x);
    return {x * s, s + 2.0F * x * s * (1.0F - s) * du};
  } else if constexpr (kind == ActivationKind::SquaredRelu) {
    const Vec positive = x > 0.0F ? x : x * 0.0F;
    return {positive * positive, 2.0F * positive};
  } else if constexpr (kind == ActivationKind::ClampedSilu) {
    const Vec g = x > kClampedSiluLimit ? splat(kClampedSiluLimit) : x;  // NaN stays NaN
    const Vec s = sigmoid(kClampedSiluSlope * g);
    const Vec slope = s * (1.0F + kClampedSiluSlope * g * (1.0F - s));
    return {g * s, x > kClampedSiluLimit ? Vec{} : slope};
  } else if constexpr (kind == ActivationKind::Tanh) {
    const Vec t = tanh(x);
    return {t, 1.0F - t * t};
  } else {
    return {x > 0.0F ? x : x * 0.0F, x > 0.0F ? splat(1.0F) : Vec{}};
  }
}

/// What a gated unit multiplies the gate's activation by, and its derivative by up.
template <ActivationKind kind>
MESHPLAN_INLINE ValueAndSlope gated_factor(Vec up) {
  if constexpr (kind == ActivationKind::ClampedSilu) {
    const Vec below = up > kClampedSiluLimit ? splat(kClampedSiluLimit) : up;  // NaN stays NaN
    const Vec clamped = below < -kClampedSiluLimit ? splat(-kClampedSiluLimit) : below;
    return {clamped + 1.0F, up == clamped ? splat(1.0F) : Vec{}};
  } else {
    return {up, splat(1.0F)};
  }
}

/// The kind as a type, for passing to a generic lambda.
template <ActivationKind k>
struct Kind {
  static constexpr ActivationKind value = k;
};

/// Calls body(Kind<k>{}) for the run-time kind.
template <class Body>
MESHPLAN_INLINE void with_kind(ActivationKind kind, Body body) {
  switch (kind) {
    case ActivationKind::Silu:
      return body(Kind<ActivationKind::Silu>{});
    case ActivationKind::Gelu:
      return body(Kind<ActivationKind::Gelu>{});
    case ActivationKind::GeluTanh:
      return body(Kind<ActivationKind::GeluTanh>{});
    case ActivationKind::SquaredRelu:
      return body(Kind<ActivationKind::SquaredRelu>{});
    case ActivationKind::Relu:
      return body(Kind<ActivationKind::Relu>{});
    case ActivationKind::ClampedSilu:
      return body(Kind<ActivationKind::ClampedSilu>{});
    case ActivationKind::Tanh:
      return body(Kind<ActivationKind::Tanh>{});
  }
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
