// Gated linear units (Shazeer 2020): SwiGLU with Silu, GeGLU with Gelu or GeluTanh. With
// ClampedSilu it is the unit of gpt-oss, in which up, too, is clamped: to [-7, 7], and 1 is added
// to it.
//
// T tokens, F features. x holds [gate | up] in every row.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "kernels/elementwise/activation.hpp"

namespace meshplan::kernels {

/// y = act(gate) up; of ClampedSilu act(gate) (clamp(up, -7, 7) + 1). Traffic: 3 T F elements.
struct GatedActivationForward {
  ActivationKind kind = ActivationKind::Silu;
  std::int64_t tokens = 0;
  std::int64_t size = 0;  // F
  DType dtype = DType::F32;
  const void* x = nullptr;  // (T, 2 F)
  std::int64_t x_stride = 0;
  void* y = nullptr;  // (T, F)
  std::int64_t y_stride = 0;
  float* largest = nullptr;  // largest |y|, for QuantizeFloat8; or null
};

/// dgate = dy up act'(gate), dup = dy act(gate); of ClampedSilu with clamp(up) + 1 for up, and dup
/// = 0 where up is clamped. Traffic: 5 T F elements.
struct GatedActivationBackward {
  ActivationKind kind = ActivationKind::Silu;
  std::int64_t tokens = 0;
  std::int64_t size = 0;
  DType dtype = DType::F32;
  const void* dy = nullptr;  // (T, F)
  std::int64_t dy_stride = 0;
  const void* x = nullptr;  // (T, 2 F)
  std::int64_t x_stride = 0;
  void* dx = nullptr;  // (T, 2 F); may be x
  std::int64_t dx_stride = 0;
  float* largest = nullptr;  // largest |dx|, for QuantizeFloat8; or null
};

}  // namespace meshplan::kernels
