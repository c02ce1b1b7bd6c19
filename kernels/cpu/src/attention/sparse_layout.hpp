// What the scratch of DeepSeek sparse attention holds (sparse_attention.hpp).
//
// S keys, E head size, Ev that of values, C choices of a query.
#pragma once

#include <cstdint>

#include "attention/attention_layout.hpp"
#include "kernels/attention/sparse_attention.hpp"

namespace meshplan::kernels {

/// Offsets, in floats, of one thread's part.
struct SparseAttentionLayout {
  std::int64_t head = 0;        // E, padded
  std::int64_t value = 0;       // Ev, padded
  std::int64_t value_size = 0;  // Ev
  std::int64_t keys = 0;        // (S, E)
  std::int64_t values = 0;      // (S, Ev)
  std::int64_t query = 0;       // (E)
  // forward only
  std::int64_t scores = 0;  // (C)
  std::int64_t output = 0;  // (Ev)
  // backward only
  std::int64_t output_grad = 0;  // (Ev)
  std::int64_t query_grad = 0;   // (E)
  std::int64_t key_grad = 0;     // (S, E)
  std::int64_t value_grad = 0;   // (S, Ev)
  std::int64_t size = 0;
};

SparseAttentionLayout sparse_attention_layout(const AttentionShape& shape, int top_k,
                                              bool backward);

}  // namespace meshplan::kernels
