// Layer normalization (Ba et al. 2016).
//
// T tokens, D features.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// y = (x - mean) inv_std weight + bias, inv_std = 1 / sqrt(variance + epsilon) with the biased
/// variance, from two passes over the row. Sums in fp32. With a residual, x stands for sum = x +
/// residual, rounded and kept: the bits of an Add before. Traffic: 2 T D elements, 4 T D with one.
struct LayerNormForward {
  std::int64_t tokens = 0;
  std::int64_t size = 0;  // D
  float epsilon = 0.0F;
  DType dtype = DType::F32;
  const void* x = nullptr;  // (T, D)
  std::int64_t x_stride = 0;
  const void* weight = nullptr;  // (D)
  const void* bias = nullptr;    // (D), or null
  void* y = nullptr;             // (T, D); may be x without a residual
  std::int64_t y_stride = 0;
  float* mean = nullptr;           // (T)
  float* inv_std = nullptr;        // (T)
  const void* residual = nullptr;  // (T, D), stride x_stride, or null
  void* sum = nullptr;             // with `residual`: (T, D), stride x_stride; may be either addend
  float* largest = nullptr;        // largest |y|, for QuantizeFloat8; or null
};

/// With n = (x - mean) inv_std and g = dy weight: dx = inv_std (g - mean(g) - n mean(g n)),
/// dweight (+)= sum over tokens of dy n, dbias (+)= sum over tokens of dy. Null outputs are not
/// computed. Traffic: 3 T D elements for dx, 2 T D for dweight and dbias.
struct LayerNormBackward {
  std::int64_t tokens = 0;
  std::int64_t size = 0;
  DType dtype = DType::F32;
  const void* dy = nullptr;  // (T, D)
  std::int64_t dy_stride = 0;
  const void* x = nullptr;  // (T, D)
  std::int64_t x_stride = 0;
  const void* weight = nullptr;  // (D)
  const float* mean = nullptr;
  const float* inv_std = nullptr;
  void* dx = nullptr;  // (T, D), or null; may be dy when the others are null
  std::int64_t dx_stride = 0;
  const void* residual = nullptr;  // (T, D), stride dx_stride: added to dx; may be dx; null = none
  float* dweight = nullptr;        // (D), or null
  float* dbias = nullptr;          // (D), or null
  bool accumulate = false;         // of dweight and dbias
  float* largest = nullptr;        // with dx: largest |dx|, for QuantizeFloat8; or null
};

}  // namespace meshplan::kernels
