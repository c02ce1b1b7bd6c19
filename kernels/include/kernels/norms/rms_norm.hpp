// Root mean square normalization (Zhang & Sennrich 2019).
//
// T tokens, D features.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// inv_rms = 1 / sqrt(mean(x^2) + epsilon); y = x inv_rms weight. Sums in fp32. With a residual, x
/// stands for sum = x + residual, rounded and kept: the bits of an Add before.
/// Traffic: 2 T D elements, 4 T D with a residual.
struct RmsNormForward {
  std::int64_t tokens = 0;
  std::int64_t size = 0;  // D
  float epsilon = 0.0F;
  DType dtype = DType::F32;
  const void* x = nullptr;  // (T, D)
  std::int64_t x_stride = 0;
  const void* weight = nullptr;  // (D)
  void* y = nullptr;             // (T, D); may be x without a residual
  std::int64_t y_stride = 0;
  float* inv_rms = nullptr;        // (T)
  const void* residual = nullptr;  // (T, D), stride x_stride, or null
  void* sum = nullptr;             // with `residual`: (T, D), stride x_stride; may be either addend
  float* largest = nullptr;        // largest |y|, for QuantizeFloat8; or null
};

/// With n = x inv_rms: dweight (+)= sum over tokens of dy n; dx = inv_rms (g - n mean(g n)), g = dy
/// weight. A null `dx` or `dweight` is not computed, so that input and weight gradients can run
/// apart; both ways give the same bits. Traffic: 3 T D elements for dx, 2 T D for dweight.
struct RmsNormBackward {
  std::int64_t tokens = 0;
  std::int64_t size = 0;
  DType dtype = DType::F32;
  const void* dy = nullptr;  // (T, D)
  std::int64_t dy_stride = 0;
  const void* x = nullptr;  // (T, D)
  std::int64_t x_stride = 0;
  const void* weight = nullptr;  // (D)
  const float* inv_rms = nullptr;
  void* dx = nullptr;  // (T, D), or null; may be dy when dweight is null
  std::int64_t dx_stride = 0;
  const void* residual = nullptr;  // (T, D), stride dx_stride: added to dx; may be dx; null = none
  float* dweight = nullptr;        // (D), or null
  bool accumulate = false;         // of dweight
  float* largest = nullptr;        // with dx: largest |dx|, for QuantizeFloat8; or null
};

}  // namespace meshplan::kernels
