// Exact attention in blocks with a running softmax: no S x S matrix ever reaches memory.
// Source: Dao et al. 2022 (FlashAttention), algorithms 1 and 4; Milakov & Gimelshein 2018.
//
// B sequences, Q queries and S keys per sequence, H query heads, K key/value heads (H % K == 0;
// query head h reads key head h / (H / K)), E head size of queries and keys, Ev of values (E except
// in latent attention). Rows are tokens, sequence-major: query i of sequence b is row b * Q + i;
// columns are heads * E, or heads * Ev.
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// Query i may see key j (both counted inside their sequence) if j < key_lengths[b], and, when
/// `causal`, j <= i + query_offset, and, when window > 0, j > i + query_offset - window.
///
/// Where an operation has key_ranges (B Q, 2), they say it instead of `causal`, query_offset and
/// key_lengths: query i sees the keys from the first number on and before the second one, of these
/// with window > 0 the last `window`. In a sequence both numbers only grow with i, so that
/// documents packed one after the other, or any part of their queries in order, are blocks of key
/// tiles; tiles that no query of a block sees are not computed (the row bounds of a column-wise
/// mask as in FlashMask, Wang et al. 2024).
struct AttentionShape {
  std::int64_t num_sequences = 0;  // B
  std::int64_t query_len = 0;      // Q
  std::int64_t key_len = 0;        // S; equals Q in self-attention without context parallelism
  int heads = 0;                   // H
  int kv_heads = 0;                // K
  int head_size = 0;               // E
  int value_head_size = 0;         // Ev; 0 means E
  bool causal = true;
  std::int64_t query_offset = 0;  // position of query 0 minus position of key 0
  std::int64_t window = 0;        // sliding window in tokens; 0 = unlimited
  float scale = 1.0F;             // of the scores; usually 1 / sqrt(E)
  float softcap = 0.0F;           // 0 = none; else scaled scores s become softcap tanh(s / softcap)
  int value_size() const { return value_head_size > 0 ? value_head_size : head_size; }
  bool operator==(const AttentionShape&) const = default;
};

/// Whose attention kernels run on a GPU. Auto: cuDNN's where it has one for the shape and mask,
/// else our own.
enum class AttentionLibrary { Auto, Cudnn, Own };

/// What a GPU may choose its kernel by; ranks on processors have one.
struct AttentionChoice {
  AttentionLibrary library = AttentionLibrary::Auto;
  bool deterministic = true;  // the same bits every time
  /// That were planned: no kernel of a library runs that wants more. Absent: any.
  std::optional<std::int64_t> scratch_bytes = std::nullopt;
};

/// Where head h of query q of sequence b has its number in statistics (B, H, Q), the layout of
/// cuDNN and of FlashAttention. @param stride  from head to head; 0 = Q
constexpr std::int64_t statistic_index(const AttentionShape& shape, std::int64_t stride,
                                       std::int64_t sequence, std::int64_t head,
                                       std::int64_t query) {
  return (sequence * shape.heads + head) * (stride > 0 ? stride : shape.query_len) + query;
}

/// o = softmax(scale q k^T) v, lse = log sum exp of the scaled (and capped) scores. With sinks, one
/// more score, sinks[h], joins the softmax of every query of head h; its value is 0, so that a head
/// may attend to nothing, and lse counts it (Xiao et al. 2024, section 3.3; gpt-oss, model card,
/// section 2.3). A query that sees no key gives o = 0 and lse = sinks[h], or -infinity without
/// sinks. For a fused qkv buffer, q, k and v point into it and both strides are (H + 2 K) E. FLOP:
/// 2 B Q S H (E + Ev) (half of it when causal). Traffic: q, k, v, o once.
struct AttentionForward {
  AttentionShape shape;
  DType dtype = DType::F32;
  const void* q = nullptr;  // (B Q, H E)
  std::int64_t q_stride = 0;
  const void* k = nullptr;  // (B S, K E)
  const void* v = nullptr;  // (B S, K Ev)
  std::int64_t kv_stride = 0;
  const std::int32_t* key_lengths = nullptr;  // (B), or null: all keys are real
  const std::int32_t* key_ranges = nullptr;   // (B Q, 2), or null
  const void* sinks = nullptr;                // (H), or null
  void* o = nullptr;                          // (B Q, H Ev)
  std::int64_t o_stride = 0;
  float* lse = nullptr;         // (B, H, Q)
  std::int64_t lse_stride = 0;  // see statistic_index
  AttentionChoice choice = {};
};

/// Gradients with respect to q, k and v, overwritten. Scores are recomputed from lse; the row sums
/// of do * o are formed inside. dk and dv sum over the query heads that share a key head, in a
/// fixed order. Sinks need nothing here, for lse counts them; their own gradient is an
/// AttentionSinksGrad (attention_sinks.hpp). FLOP: 2 B Q S H (3 E + 2 Ev) (half of it when causal).
struct AttentionBackward {
  AttentionShape shape;
  DType dtype = DType::F32;
  const void* q = nullptr;
  std::int64_t q_stride = 0;
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t kv_stride = 0;
  const std::int32_t* key_lengths = nullptr;
  const std::int32_t* key_ranges = nullptr;
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
  AttentionChoice choice = {};
};

}  // namespace meshplan::kernels
