// Attention of each query to the keys that were chosen for it (SelectKeysForward, indexer.hpp).
// Source: DeepSeek-AI 2025, "DeepSeek-V3.2-Exp: Boosting Long-Context Efficiency with DeepSeek
// Sparse Attention", section 1, equation 2.
//
// B, Q, S, H, K, E and Ev as in attention.hpp, C choices of a query.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.hpp"

namespace meshplan::kernels {

/// As AttentionForward, over the keys at choices[t] alone, which all heads share. Choices are
/// positions inside the sequence, ascending, then -1; they replace the mask of the shape. No soft
/// cap. A query without choices gives o = 0 and lse = -infinity. `probabilities` is the sum of the
/// softmax over the heads of this operation, 0 where there is no choice: what IndexerLoss learns
/// from. FLOP: 2 B Q C H (E + Ev). Traffic: q and o once, C K (E + Ev) elements of k and v a query,
/// of which caches save what neighbouring queries share.
struct SparseAttentionForward {
  AttentionShape shape;
  DType dtype = DType::F32;
  const void* q = nullptr;  // (B Q, H E)
  std::int64_t q_stride = 0;
  const void* k = nullptr;  // (B S, K E)
  const void* v = nullptr;  // (B S, K Ev)
  std::int64_t kv_stride = 0;
  int top_k = 0;                          // C
  const std::int32_t* choices = nullptr;  // (B Q, C)
  void* o = nullptr;                      // (B Q, H Ev)
  std::int64_t o_stride = 0;
  float* lse = nullptr;            // (B, H, Q)
  std::int64_t lse_stride = 0;     // see statistic_index
  float* probabilities = nullptr;  // (B Q, C), or null
};

/// Gradients with respect to q, k and v, overwritten: as AttentionBackward. dk and dv sum over the
/// queries that chose a key, ascending, and the query heads that share it, in a fixed order.
/// FLOP: 2 B Q C H (3 E + 2 Ev).
struct SparseAttentionBackward {
  AttentionShape shape;
  DType dtype = DType::F32;
  const void* q = nullptr;
  std::int64_t q_stride = 0;
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t kv_stride = 0;
  int top_k = 0;
  const std::int32_t* choices = nullptr;
  const void* o = nullptr;  // (B Q, H Ev)
  std::int64_t o_stride = 0;
  const void* output_grad = nullptr;  // do: (B Q, H Ev), stride o_stride
  const float* lse = nullptr;         // (B, H, Q)
  std::int64_t lse_stride = 0;        // see statistic_index
  void* dq = nullptr;                 // (B Q, H E)
  std::int64_t dq_stride = 0;
  void* dk = nullptr;  // (B S, K E)
  void* dv = nullptr;  // (B S, K Ev)
  std::int64_t dkv_stride = 0;
};

}  // namespace meshplan::kernels
