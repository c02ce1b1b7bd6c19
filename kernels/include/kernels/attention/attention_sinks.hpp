#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// Gradients of the sinks of an AttentionForward: a sink has probability exp(sinks[h] - lse) and
/// value 0, so that dsinks[h] (+)= -sum over tokens of exp(sinks[h] - lse) rowsum(do * o), in fp32.
/// o and lse are those over all keys and the sink. T tokens, H query heads, Ev size of value heads.
/// Source: the derivative of a softmax; Dao et al. 2022 (FlashAttention), equation 4, with dP = 0.
/// Traffic: 2 T H Ev elements.
struct AttentionSinksGrad {
  std::int64_t tokens = 0;   // T
  std::int64_t queries = 0;  // Q, of a sequence; 0 = T
  int heads = 0;             // H
  int head_size = 0;         // Ev
  DType dtype = DType::F32;
  const void* sinks = nullptr;  // (H)
  const void* o = nullptr;      // (T, H Ev)
  std::int64_t o_stride = 0;
  const void* output_grad = nullptr;  // do: (T, H Ev), stride o_stride
  const float* lse = nullptr;         // (T / Q, H, Q)
  float* dsinks = nullptr;            // (H)
  bool accumulate = false;
  constexpr std::int64_t lse_index(std::int64_t token, std::int64_t head) const {
    const std::int64_t length = queries > 0 ? queries : tokens;
    return (token / length * heads + head) * length + token % length;
  }
};

}  // namespace meshplan::kernels
