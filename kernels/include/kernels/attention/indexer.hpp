// The lightning indexer of DeepSeek sparse attention (DSA): it scores the keys that a query sees
// and selects those that the query attends to, and it learns the distribution of the attention.
// Source: DeepSeek-AI 2025, "DeepSeek-V3.2-Exp: Boosting Long-Context Efficiency with DeepSeek
// Sparse Attention", sections 1 and 2.1, equations 1, 2 and 4; GLM-5 has the same indexer.
//
// B sequences, Q queries and S keys of a sequence, Hi index heads of Di elements, C choices of a
// query. Rows are tokens, sequence-major, as in attention.hpp.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.hpp"

namespace meshplan::kernels {

/// Index scores I(t, s) = scale sum over j of w(t, j) relu(q(t, j) . k(s)): all heads share a key.
struct Indexer {
  /// heads = Hi, kv_heads = 1, head_size = Di. The mask is that of attention.hpp; no soft cap.
  AttentionShape shape;
  DType dtype = DType::F32;  // of q, k and weights
  const void* q = nullptr;   // (B Q, Hi Di)
  std::int64_t q_stride = 0;
  const void* k = nullptr;  // (B S, Di)
  std::int64_t k_stride = 0;
  const void* weights = nullptr;  // w: (B Q, Hi)
  std::int64_t weights_stride = 0;
  const std::int32_t* key_lengths = nullptr;  // (B), or null: all keys are real
  const std::int32_t* key_ranges = nullptr;   // (B Q, 2), or null
};

/// choices[t] = the positions (inside the sequence) of the C largest scores among the keys that
/// query t sees, ascending, so that sums over them have one order; of equal scores the lower
/// position, and a NaN before all, so that it is seen. Where a query sees fewer keys it chooses all
/// of them, and -1 fills the rest. Queries of the last `uncounted_sequences` choose none, so that
/// no loss counts them. No gradient passes through a choice. FLOP: 2 B Q S Hi Di (half of it when
/// causal). Traffic: q, k, weights once, 4 B Q C bytes written.
struct SelectKeysForward {
  Indexer indexer;
  int top_k = 0;                    // C
  std::int32_t* choices = nullptr;  // (B Q, C)
  std::int64_t uncounted_sequences = 0;
};

/// loss[t] = KL(p(t) || softmax of I(t) over the chosen keys) = sum over them of p (log p -
/// log softmax I), where p is `probabilities` divided by their sum: the main attention's
/// distribution, summed over its heads, a constant to the indexer. The heads of several ranks are
/// summed before (SparseAttentionForward::probabilities). 0 for a query without choices or
/// probabilities. The mask of the indexer is not read: choices say what is seen. FLOP: 2 B Q C Hi
/// Di. Traffic: q, weights and probabilities once, C Di elements of k a query.
struct IndexerLossForward {
  Indexer indexer;
  int top_k = 0;                          // C
  const std::int32_t* choices = nullptr;  // (B Q, C)
  const float* probabilities = nullptr;   // (B Q, C), not negative
  float* loss = nullptr;                  // (B Q)
};

/// Gradients of scale * sum over t of loss[t] with respect to q, k and weights, overwritten; scores
/// are computed again. `scale` is read when the operation runs. dk sums over the queries that chose
/// a key, ascending. dI = scale (softmax I - p). FLOP: 8 B Q C Hi Di. Traffic: as forward, twice.
struct IndexerLossBackward {
  Indexer indexer;
  int top_k = 0;
  const std::int32_t* choices = nullptr;
  const float* probabilities = nullptr;
  const float* scale = nullptr;  // one number
  void* dq = nullptr;            // (B Q, Hi Di)
  std::int64_t dq_stride = 0;
  void* dk = nullptr;  // (B S, Di)
  std::int64_t dk_stride = 0;
  void* dweights = nullptr;  // (B Q, Hi)
  std::int64_t dweights_stride = 0;
};

}  // namespace meshplan::kernels
