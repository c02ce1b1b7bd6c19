// Learned absolute positions.
//
// T tokens, D features, P positions.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "kernels/embeddings/positions.hpp"

namespace meshplan::kernels {

/// out = x + weight[position of the row]. Traffic: 3 T D elements.
struct PositionEmbeddingForward {
  std::int64_t tokens = 0;
  std::int64_t size = 0;  // D
  RowPositions positions;
  DType dtype = DType::F32;
  const void* x = nullptr;  // (T, D)
  std::int64_t x_stride = 0;
  const void* weight = nullptr;  // (P, D), contiguous
  void* out = nullptr;           // (T, D); may be x
  std::int64_t out_stride = 0;
};

/// dweight[position] += dout, tokens in ascending order. (dx is dout: nothing to compute.) Without
/// `accumulate` all `num_positions` rows are zeroed first.
struct PositionEmbeddingBackward {
  std::int64_t tokens = 0;
  std::int64_t size = 0;
  std::int64_t num_positions = 0;  // P
  RowPositions positions;
  DType dtype = DType::F32;
  const void* dout = nullptr;  // (T, D)
  std::int64_t dout_stride = 0;
  float* dweight = nullptr;  // (P, D), contiguous
  bool accumulate = true;
};

}  // namespace meshplan::kernels
