// The gated delta rule: linear attention whose state forgets by a gate and is corrected by the
// difference between a value and what the state has for its key. Source: Yang, Kautz, Hatamizadeh
// 2024, "Gated Delta Networks", equation 10 and section 3.3; chunks after Yang et al. 2024,
// "Parallelizing Linear Transformers with the Delta Rule over Sequence Length".
//
// B sequences of S tokens, T = B S; Hk key heads of Ek elements, Hv value heads of Ev (Hv % Hk ==
// 0; value head h reads key head h / (Hv / Hk)); C tokens of a chunk, N = ceil(S / C) chunks.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

constexpr std::int64_t kMaxDeltaChunk = 64;
constexpr float kDeltaNormEpsilon = 1e-6F;  // added to the squared lengths of queries and keys

struct GatedDeltaShape {
  std::int64_t num_sequences = 0;  // B
  std::int64_t seq_len = 0;        // S
  std::int64_t key_heads = 0;      // Hk
  std::int64_t value_heads = 0;    // Hv
  std::int64_t key_size = 0;       // Ek
  std::int64_t value_size = 0;     // Ev
  std::int64_t chunk_len = 64;     // C, 1 to kMaxDeltaChunk: of speed and memory alone
  constexpr std::int64_t tokens() const { return num_sequences * seq_len; }
  constexpr std::int64_t columns() const {
    return 2 * key_heads * key_size + value_heads * value_size;
  }
  constexpr std::int64_t value_columns() const { return value_heads * value_size; }
  constexpr std::int64_t chunks() const { return (seq_len + chunk_len - 1) / chunk_len; }
  /// Elements of one state of every value head of every sequence.
  constexpr std::int64_t state_size() const {
    return num_sequences * value_heads * key_size * value_size;
  }
  bool operator==(const GatedDeltaShape&) const = default;
};

/// Per value head, with q and k of length 1 (x / sqrt(sum x^2 + 1e-6)), q also over sqrt(Ek):
/// beta = sigmoid(b), decay = exp(-exp(a_log) softplus(a + dt_bias)); token by token the state S
/// (Ek, Ev) becomes decay S, then S + k u^T with u = beta (v - S^T k); o = S^T q. A state is 0
/// where a sequence begins without an initial state, or, with `positions`, where a document does.
///
/// Computed in chunks, in fp32: u solves (I + L) u = beta (v - decay from the chunk's begin S^T k)
/// with L[i, j] = beta_i decay(j to i) k_i k_j for j < i. States are those at the beginnings of
/// chunks; backward reads them. FLOP: 2 T (Hv (3 Ek Ev + C Ev) + Hk C Ek). Traffic: qkv and o once,
/// states once: N B Hv Ek Ev of fp32.
struct GatedDeltaForward {
  GatedDeltaShape shape;
  DType dtype = DType::F32;
  const void* qkv = nullptr;  // (T, 2 Hk Ek + Hv Ev): query heads, key heads, value heads
  std::int64_t qkv_stride = 0;
  const void* ba = nullptr;  // (T, 2 Hv): b, then a
  std::int64_t ba_stride = 0;
  DType decay_dtype = DType::F32;           // of dt_bias and a_log, which bf16 would round by 0.4 %
  const void* dt_bias = nullptr;            // (Hv)
  const void* a_log = nullptr;              // (Hv)
  const std::int32_t* positions = nullptr;  // (T): 0 where a document begins; or null
  const float* initial_state = nullptr;     // (B, Hv, Ek, Ev), or null: 0
  void* o = nullptr;                        // (T, Hv Ev)
  std::int64_t o_stride = 0;
  float* states = nullptr;       // (B, Hv, N, Ek, Ev), or null: not kept
  float* final_state = nullptr;  // (B, Hv, Ek, Ev), or null
};

/// Gradients of all inputs, overwritten; those of dt_bias and a_log are sums over tokens in fp32,
/// in an order that depends on the sizes alone. Updates u are computed again from the states. Those
/// of queries and keys sum over the value heads that share a key head, in a fixed order. FLOP: 2 T
/// (Hv (7 Ek Ev + C (2 Ek + 2.5 Ev)) + Hk C Ek). Traffic: qkv, do and dqkv once, states once.
struct GatedDeltaBackward {
  GatedDeltaShape shape;
  DType dtype = DType::F32;
  const void* output_grad = nullptr;  // do: (T, Hv Ev)
  std::int64_t output_grad_stride = 0;
  const void* qkv = nullptr;
  std::int64_t qkv_stride = 0;
  const void* ba = nullptr;
  std::int64_t ba_stride = 0;
  DType decay_dtype = DType::F32;
  const void* dt_bias = nullptr;
  const void* a_log = nullptr;
  const std::int32_t* positions = nullptr;
  const float* states = nullptr;            // (B, Hv, N, Ek, Ev)
  const float* final_state_grad = nullptr;  // (B, Hv, Ek, Ev), or null: 0
  void* dqkv = nullptr;                     // (T, 2 Hk Ek + Hv Ev)
  std::int64_t dqkv_stride = 0;
  void* dba = nullptr;  // (T, 2 Hv)
  std::int64_t dba_stride = 0;
  float* ddt_bias = nullptr;            // (Hv), or null
  float* da_log = nullptr;              // (Hv), or null
  bool accumulate = false;              // of ddt_bias and da_log
  float* initial_state_grad = nullptr;  // (B, Hv, Ek, Ev), or null
};

}  // namespace meshplan::kernels
