// Pointwise non-linearities on contiguous ranges.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// Silu x sigmoid(x); Gelu x Phi(x) (erf form); GeluTanh its tanh approximation (Hendrycks & Gimpel
/// 2016); SquaredRelu max(x, 0)^2; Relu max(x, 0), whose derivative at 0 is 0; ClampedSilu g
/// sigmoid(1.702 g) with g = min(x, 7) (gpt-oss, model card, section 2.2); Tanh tanh(x).
enum class ActivationKind { Silu, Gelu, GeluTanh, SquaredRelu, Relu, ClampedSilu, Tanh };

constexpr float kClampedSiluLimit = 7.0F;
constexpr float kClampedSiluSlope = 1.702F;

/// y = act(x). Traffic: 2 elements each.
struct ActivationForward {
  ActivationKind kind = ActivationKind::Gelu;
  std::int64_t count = 0;
  DType dtype = DType::F32;
  const void* x = nullptr;
  void* y = nullptr;         // may be x
  float* largest = nullptr;  // largest |y|, for QuantizeFloat8; or null
};

/// dx = dy act'(x). Traffic: 3 elements each.
struct ActivationBackward {
  ActivationKind kind = ActivationKind::Gelu;
  std::int64_t count = 0;
  DType dtype = DType::F32;
  const void* dy = nullptr;
  const void* x = nullptr;
  void* dx = nullptr;        // may be dy or x
  float* largest = nullptr;  // largest |dx|, for QuantizeFloat8; or null
};

}  // namespace meshplan::kernels
