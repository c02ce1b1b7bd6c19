// Causal depthwise convolution over the tokens of a sequence, then SiLU or nothing: what query, key
// and value pass before linear attention, and x, B and C before a selective scan (Gu & Dao 2023,
// section 3.4; Yang, Kautz, Hatamizadeh 2024, "Gated Delta Networks", section 3.4).
//
// T tokens, sequence-major, S of each sequence, C channels, K taps.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

constexpr int kMaxConvolutionTaps = 4;

struct ShortConvolutionShape {
  std::int64_t tokens = 0;    // T
  std::int64_t seq_len = 0;   // S
  std::int64_t channels = 0;  // C
  int taps = 0;               // K, 1 to kMaxConvolutionTaps
  bool silu = true;           // false: no activation
  bool operator==(const ShortConvolutionShape&) const = default;
};

/// How many tokens before token t it may look at: those of its sequence and, with `positions`, of
/// its document (RowPositions::rows: 0 where one begins).
constexpr std::int64_t tokens_before(std::int64_t token, std::int64_t seq_len,
                                     const std::int32_t* positions) {
  const std::int64_t in_sequence = token % seq_len;
  if (positions == nullptr || positions[token] >= in_sequence) return in_sequence;
  return positions[token];
}

/// pre[t, c] = b[c] + sum over j of w[c, j] x[t - K + 1 + j, c], where tokens of another sequence
/// or document count as 0; y = silu(pre) or pre. Sums in fp32. Traffic: 2 T C elements.
struct ShortConvolutionForward {
  ShortConvolutionShape shape;
  DType dtype = DType::F32;
  const void* x = nullptr;  // (T, C)
  std::int64_t x_stride = 0;
  const void* weight = nullptr;             // (C, K)
  const void* bias = nullptr;               // (C), or null
  const std::int32_t* positions = nullptr;  // (T), or null: sequences are single documents
  void* y = nullptr;                        // (T, C); not x
  std::int64_t y_stride = 0;
};

/// pre is computed again from x. With dpre = dy silu'(pre): dx[t] = sum over j of w[c, j] dpre[t +
/// K
/// - 1 - j], dweight (+)= sum over t of dpre[t] x[t - K + 1 + j] and dbias (+)= sum over t of
/// dpre[t], in fp32 and in an order that depends on the sizes alone. A null dx, dweight or dbias is
/// not computed. Traffic: 3 T C elements.
struct ShortConvolutionBackward {
  ShortConvolutionShape shape;
  DType dtype = DType::F32;
  const void* dy = nullptr;  // (T, C)
  std::int64_t dy_stride = 0;
  const void* x = nullptr;  // (T, C)
  std::int64_t x_stride = 0;
  const void* weight = nullptr;             // (C, K)
  const void* bias = nullptr;               // (C), or null
  const std::int32_t* positions = nullptr;  // (T), or null
  void* dx = nullptr;                       // (T, C), or null; neither dy nor x
  std::int64_t dx_stride = 0;
  float* dweight = nullptr;  // (C, K), or null
  float* dbias = nullptr;    // (C), or null
  bool accumulate = false;   // of dweight and dbias
};

}  // namespace meshplan::kernels
