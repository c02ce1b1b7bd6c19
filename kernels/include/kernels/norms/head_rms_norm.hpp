// Root mean square normalization of every query and key head inside a fused qkv buffer (Henry et
// al. 2020; in Qwen3 and Gemma 3 with one weight for all query heads and one for all key heads).
//
// T tokens, H query heads, K key heads, E head size. A row is q (H E), k (K E), v (K E).
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "kernels/embeddings/positions.hpp"

namespace meshplan::kernels {

struct HeadRmsNormShape {
  std::int64_t tokens = 0;     // T
  std::int64_t heads = 0;      // H
  std::int64_t kv_heads = 0;   // K
  std::int64_t head_size = 0;  // E
  bool operator==(const HeadRmsNormShape&) const = default;
};

/// A rotation behind the norm, as a Rope's of query and key heads; without a table there is none.
struct HeadRotation {
  int rope_size = 0;
  RowPositions positions;
  const float* table = nullptr;  // Rope::table
};

/// For each head x: inv_rms = 1 / sqrt(mean(x^2) + epsilon); y = x inv_rms weight, rotated: the
/// bits of a Rope on y, without its pass over memory. The values are copied.
/// Traffic: 2 T (H + 2 K) E elements.
struct HeadRmsNormForward {
  HeadRmsNormShape shape;
  float epsilon = 0.0F;
  DType dtype = DType::F32;
  const void* x = nullptr;         // (T, (H + 2 K) E)
  std::int64_t x_stride = 0;       // of x and y
  const void* q_weight = nullptr;  // (E)
  const void* k_weight = nullptr;  // (E)
  void* y = nullptr;
  float* inv_rms = nullptr;  // (H + K, T): head by head
  HeadRotation rotation = {};
};

/// In place: `gradient` holds dy, then dx, which are the same for the values. First, dy is rotated
/// back. dq_weight and dk_weight (+)= the sums over tokens and heads of dy x inv_rms, head by
/// head.
struct HeadRmsNormBackward {
  HeadRmsNormShape shape;
  DType dtype = DType::F32;
  void* gradient = nullptr;  // (T, (H + 2 K) E)
  std::int64_t gradient_stride = 0;
  const void* x = nullptr;
  std::int64_t x_stride = 0;
  const void* q_weight = nullptr;
  const void* k_weight = nullptr;
  const float* inv_rms = nullptr;
  float* dq_weight = nullptr;  // (E), or null
  float* dk_weight = nullptr;  // (E), or null
  bool accumulate = false;     // of both
  HeadRotation rotation = {};
};

}  // namespace meshplan::kernels
