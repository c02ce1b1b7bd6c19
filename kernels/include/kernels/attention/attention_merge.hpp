#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// Attention over two disjoint sets of keys becomes attention over their union: with weights
/// w = exp(lse - max), o = (w o + w' o') / (w + w') and lse = max + log(w + w'), in place. A query
/// that saw no key (lse = -infinity) adds nothing. T rows of one sequence, H heads, E head size.
/// Source: Liu et al. 2023 (Ring Attention), section 3; Milakov & Gimelshein 2018.
/// Traffic: 2 T H E elements of o, 1 of o'.
struct AttentionMerge {
  std::int64_t tokens = 0;   // T
  int heads = 0;             // H
  int head_size = 0;         // E
  DType dtype = DType::F32;  // of o: F32 keeps the rounding of many merges apart
  void* o = nullptr;         // (T, H E)
  std::int64_t o_stride = 0;
  float* lse = nullptr;         // (H, T)
  std::int64_t lse_stride = 0;  // from head to head, of both; 0 = T
  DType other_dtype = DType::F32;
  const void* other_o = nullptr;  // (T, H E)
  std::int64_t other_o_stride = 0;
  const float* other_lse = nullptr;  // (H, T)
  constexpr std::int64_t lse_index(std::int64_t head, std::int64_t token) const {
    return head * (lse_stride > 0 ? lse_stride : tokens) + token;
  }
};

}  // namespace meshplan::kernels
