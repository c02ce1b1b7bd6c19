#pragma once

#include "device/device.cuh"
#include "kernels/elementwise/activation.hpp"

namespace meshplan::kernels::cuda {

/// Value and derivative of an activation at x; what is not used is not computed.
struct ValueAndSlope {
  float value;
  float slope;
};

__device__ inline float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

template <ActivationKind kind>
__device__ ValueAndSlope evaluate(float x) {
  if constexpr (kind == ActivationKind::Silu) {
    const float s = sigmoid(x);
    return {x * s, s * (1.0F + x * (1.0F - s))};
  } else if constexpr (kind == ActivationKind::Gelu) {
    constexpr float kInvSqrt2 = 0.707106781F;
    constexpr float kInvSqrt2Pi = 0.398942280F;
    const float cumulative = 0.5F * erfcf(-x * kInvSqrt2);  // accurate in the negative tail
    const float density = kInvSqrt2Pi * expf(-0.5F * x * x);
    return {x * cumulative, cumulative + x * density};
  } else if constexpr (kind == ActivationKind::GeluTanh) {
    constexpr float kScale = 0.797884561F;  // sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    // (1 + tanh(u)) / 2 = sigmoid(2 u) keeps the negative tail accurate
    const float s = sigmoid(2.0F * kScale * (x + kCubic * x * x * x));
    const float du = kScale * (1.0F + 3.0F * kCubic * x * x);
    return {x * s, s + 2.0F * x * s * (1.0F - s) * du};
  } else if constexpr (kind == ActivationKind::SquaredRelu) {
    const float positive = x > 0.0F ? x : x * 0.0F;  // NaN stays NaN
    return {positive * positive, 2.0F * positive};
  } else if constexpr (kind == ActivationKind::ClampedSilu) {
    const float limit = kClampedSiluLimit;
    const bool clamped = x > limit;  // NaN stays NaN
    const float g = clamped ? limit : x;
    const float s = sigmoid(kClampedSiluSlope * g);
    return {g * s, clamped ? 0.0F : s * (1.0F + kClampedSiluSlope * g * (1.0F - s))};
  } else if constexpr (kind == ActivationKind::Tanh) {
    const float t = tanhf(x);
    return {t, 1.0F - t * t};
  } else {
    return {x > 0.0F ? x : x * 0.0F, x > 0.0F ? 1.0F : 0.0F};
  }
}

/// What a gated unit multiplies the gate's activation by, and its derivative by up.
template <ActivationKind kind>
__device__ ValueAndSlope gated_factor(float up) {
  if constexpr (kind == ActivationKind::ClampedSilu) {
    const float limit = kClampedSiluLimit;
    const float below = up > limit ? limit : up;  // NaN stays NaN
    const float clamped = below < -limit ? -limit : below;
    return {clamped + 1.0F, up == clamped ? 1.0F : 0.0F};
  } else {
    return {up, 1.0F};
  }
}

/// The kind as a type, for passing to a generic lambda.
template <ActivationKind k>
struct Kind {
  static constexpr ActivationKind value = k;
};

/// Calls body(Kind<k>{}) for the run-time kind, on the host.
template <class Body>
void with_kind(ActivationKind kind, const Body& body) {
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

}  // namespace meshplan::kernels::cuda
