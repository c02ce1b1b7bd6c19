// Token embedding over a shard of the vocabulary.
//
// T tokens, D features; this rank holds rows [vocab_begin, vocab_end) of the global table.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// out[t] = weight[ids[t] - vocab_begin], or zeros for an id outside the shard, so that the sum
/// over shards is the full look-up. Traffic: 2 T D elements.
struct EmbeddingForward {
  std::int64_t tokens = 0;
  std::int64_t size = 0;  // D
  std::int64_t vocab_begin = 0;
  std::int64_t vocab_end = 0;
  DType dtype = DType::F32;
  const std::int32_t* ids = nullptr;  // (T)
  const void* weight = nullptr;       // (vocab_end - vocab_begin, D), contiguous
  void* out = nullptr;                // (T, D)
  std::int64_t out_stride = 0;
};

/// dweight[ids[t] - vocab_begin] += dout[t], tokens in ascending order, so repeated ids sum the
/// same way every time. Without `accumulate` the whole of dweight is zeroed first.
struct EmbeddingBackward {
  std::int64_t tokens = 0;
  std::int64_t size = 0;
  std::int64_t vocab_begin = 0;
  std::int64_t vocab_end = 0;
  DType dtype = DType::F32;
  const std::int32_t* ids = nullptr;  // (T)
  const void* dout = nullptr;         // (T, D)
  std::int64_t dout_stride = 0;
  float* dweight = nullptr;  // (vocab_end - vocab_begin, D), contiguous
  bool accumulate = true;
};

}  // namespace meshplan::kernels
