// What the scratch of DeepSeek sparse attention holds (indexer.hpp, sparse_attention.hpp).
//
// S keys, E head size, Ev that of values, Hi index heads of Di elements, C choices of a query.
#pragma once

#include <cstdint>

#include "attention/attention_layout.hpp"
#include "kernels/attention/indexer.hpp"
#include "kernels/attention/sparse_attention.hpp"

namespace meshplan::kernels {

constexpr std::int64_t kGradientKeys = 256;  // whose gradients a thread sums at once

/// Offsets, in floats, of one thread's part.
struct SelectKeysLayout {
  std::int64_t head = 0;             // Di, padded
  std::int64_t keys = 0;             // S, padded to blocks
  std::int64_t keys_transposed = 0;  // (S / block, Di, block)
  std::int64_t key = 0;              // (S, Di) until it is transposed
  std::int64_t query = 0;            // (Hi, Di)
  std::int64_t weights = 0;          // (Hi)
  std::int64_t products = 0;         // (Hi, block)
  std::int64_t scores = 0;           // (S), and a vector beyond
  std::int64_t order = 0;            // (S) int32 and a vector beyond: scores
  std::int64_t size = 0;             // floats in all
};

struct IndexerLossLayout {
  std::int64_t head = 0;            // Di, padded
  std::int64_t query = 0;           // (Hi, Di)
  std::int64_t weights = 0;         // (Hi)
  std::int64_t key = 0;             // (block, Di): chosen keys
  std::int64_t key_transposed = 0;  // (Di, block)
  std::int64_t products = 0;        // (C / block, Hi, block)
  std::int64_t scores = 0;          // (C), padded to blocks
  // backward only
  std::int64_t query_grad = 0;    // (Hi, Di)
  std::int64_t weight_grads = 0;  // (Hi)
  std::int64_t rows_grad = 0;     // (block, Di): of chosen keys
  std::int64_t key_grad = 0;      // (kGradientKeys, Di)
  std::int64_t size = 0;
};

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

SelectKeysLayout select_keys_layout(const AttentionShape& shape);
IndexerLossLayout indexer_loss_layout(const AttentionShape& shape, int top_k, bool backward);
SparseAttentionLayout sparse_attention_layout(const AttentionShape& shape, int top_k,
                                              bool backward);

}  // namespace meshplan::kernels
