// The state-space mixer of Mamba 2 in chunks of tokens: products inside of a chunk, one state
// passed from chunk to chunk. Source: Dao & Gu 2024 (Transformers are SSMs), section 6 and listing
// 1; as torch_forward of transformers' Mamba2Mixer and NemotronHMamba2Mixer computes it.
//
// T = B S tokens: B sequences of S. H heads of P elements, G groups (H % G == 0; head h reads group
// h / (H / G)), N state size, Q chunk size, K = ceil(S / Q) chunks of a sequence. Rows are tokens,
// sequence-major; a row of xbc is x (H P), b (G N), c (G N), after the short convolution.
#pragma once

#include <cstdint>
#include <limits>

#include "core/dtype.hpp"

namespace meshplan::kernels {

struct SsdShape {
  std::int64_t num_sequences = 0;  // B
  std::int64_t seq_len = 0;        // S
  std::int64_t heads = 0;          // H
  std::int64_t head_size = 0;      // P
  std::int64_t groups = 1;         // G
  std::int64_t state_size = 0;     // N
  /// Q, usually 128 or 256. Longer chunks do more work and keep fewer states; results differ by
  /// rounding alone.
  std::int64_t chunk_size = 256;
  constexpr std::int64_t tokens() const { return num_sequences * seq_len; }
  constexpr std::int64_t columns() const { return heads * head_size; }
  constexpr std::int64_t xbc_columns() const { return columns() + 2 * groups * state_size; }
  constexpr std::int64_t num_chunks() const { return (seq_len + chunk_size - 1) / chunk_size; }
  /// Numbers in the states of one sequence at one place.
  constexpr std::int64_t state_elements() const { return columns() * state_size; }
  bool operator==(const SsdShape&) const = default;
};

/// Bounds of a step dt' (time_step_limit in transformers).
struct StepLimits {
  float lower = 0.0F;
  float upper = std::numeric_limits<float>::infinity();
  bool operator==(const StepLimits&) const = default;
};

/// For each head, with dt' = clamp(softplus(dt + dt_bias), lower, upper), A = -exp(a_log) and a
/// state h (P, N) that starts as zero:
///   h = exp(dt' A) h + dt' x b^T;  y = h c + d x.
/// With positions, h is zero before a token whose position is 0, so that packed documents do not
/// see each other. With initial_state, h starts as that instead, except before such a token.
/// Arithmetic is fp32; sums of dt' A are kept exactly enough that a chunk's size does not matter.
/// FLOP: T (H P (Q + 4 N) + G Q N). Traffic: xbc, dt, y and states once.
struct SsdForward {
  SsdShape shape;
  StepLimits limits;
  DType dtype = DType::F32;
  const void* xbc = nullptr;  // (T, H P + 2 G N)
  std::int64_t xbc_stride = 0;
  const void* dt = nullptr;  // (T, H), may lie beside xbc in rows of one buffer
  std::int64_t dt_stride = 0;
  const void* a_log = nullptr;              // (H)
  const void* d = nullptr;                  // (H)
  const void* dt_bias = nullptr;            // (H)
  const std::int32_t* positions = nullptr;  // (T) in its document; null = a sequence is one
  const float* initial_state = nullptr;     // (B, H, P, N), or null
  void* y = nullptr;                        // (T, H P)
  std::int64_t y_stride = 0;
  float* states = nullptr;       // (B, K, H, P, N): h before each chunk, for SsdBackward
  float* final_state = nullptr;  // (B, H, P, N): h after the last token, or null
};

/// Gradients with respect to xbc and dt, overwritten, and to a_log, d and dt_bias, summed over
/// tokens in one order. final_state_grad, if there is one, joins dy as the gradient of the loss
/// with respect to final_state. A step at a limit passes no gradient on beyond it. The products
/// inside of a chunk are recomputed. FLOP: T (2 H P (Q + 4 N) + 3 G Q N). Traffic: xbc, dt, dy,
/// dxbc, ddt and states once.
struct SsdBackward {
  SsdShape shape;
  StepLimits limits;
  DType dtype = DType::F32;
  const void* dy = nullptr;  // (T, H P)
  std::int64_t dy_stride = 0;
  const void* xbc = nullptr;  // (T, H P + 2 G N)
  std::int64_t xbc_stride = 0;
  const void* dt = nullptr;  // (T, H)
  std::int64_t dt_stride = 0;
  const void* a_log = nullptr;              // (H)
  const void* d = nullptr;                  // (H)
  const void* dt_bias = nullptr;            // (H)
  const std::int32_t* positions = nullptr;  // (T), or null
  const float* states = nullptr;            // (B, K, H, P, N), of SsdForward
  const float* final_state_grad = nullptr;  // (B, H, P, N), or null
  void* dxbc = nullptr;                     // (T, H P + 2 G N)
  std::int64_t dxbc_stride = 0;
  void* ddt = nullptr;  // (T, H)
  std::int64_t ddt_stride = 0;
  float* da_log = nullptr;              // (H), or null
  float* dd = nullptr;                  // (H), or null
  float* ddt_bias = nullptr;            // (H), or null
  bool accumulate = false;              // of these three
  float* initial_state_grad = nullptr;  // (B, H, P, N), or null
};

}  // namespace meshplan::kernels
