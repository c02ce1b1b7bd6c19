// Transposition and masking that attention's forward and backward share.
#pragma once

#include "attention/attention_layout.hpp"
#include "simd/packed_rows.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

/// From (rows, padded) with rows a multiple of the key block to blocks of (padded, key block).
inline void transpose_blocks(float* to, const float* from, int64_t padded, int64_t rows) {
  for (int64_t block = 0; block < rows; block += kKeyBlock) {
    const float* in = from + block * padded;
    float* out = to + block * padded;
    for (int64_t row = 0; row < kKeyBlock; row += 4)
      for (int64_t i = 0; i < padded; i += 4)
        transpose_quad(out + i * kKeyBlock + row, kKeyBlock, in + row * padded + i, padded);
  }
}

/// Keys [begin, end) that a query sees.
struct KeyRange {
  int64_t begin;
  int64_t end;
};

/// Which keys the queries of one sequence see. Ranges only move right as queries advance.
struct Visibility {
  const AttentionShape& shape;
  int64_t num_keys;       // real ones
  const int32_t* ranges;  // (Q, 2) of this sequence, or null

  MESHPLAN_INLINE KeyRange of(int64_t query) const {
    const int64_t position = query + shape.query_offset;
    const int64_t seen = shape.causal ? least(num_keys, position + 1) : num_keys;
    const int64_t end = ranges != nullptr ? ranges[2 * query + 1] : seen;
    const int64_t last = ranges != nullptr ? end - 1 : position;
    const int64_t first = ranges != nullptr ? ranges[2 * query] : 0;
    const int64_t begin = shape.window > 0 ? most(first, last - shape.window + 1) : first;
    return {begin, most(begin, end)};
  }
  /// Keys that any query of [first, first + count) sees, and what lies between them.
  MESHPLAN_INLINE KeyRange of(int64_t first, int64_t count) const {
    return {of(first).begin, of(first + count - 1).end};
  }
  /// Does any of them see a key of [begin, end)? Without ranges there are no gaps to skip.
  MESHPLAN_INLINE bool any(int64_t first, int64_t count, int64_t begin, int64_t end) const {
    if (ranges == nullptr) return true;
    for (int64_t query = first; query < first + count; ++query) {
      const KeyRange keys = of(query);
      if (keys.begin < end && keys.end > begin && keys.begin < keys.end) return true;
    }
    return false;
  }
};

template <class Op>
MESHPLAN_INLINE Visibility visibility_of(const Op& op, int64_t sequence) {
  const int64_t num_keys = op.key_lengths != nullptr ? op.key_lengths[sequence] : op.shape.key_len;
  return {op.shape, num_keys,
          op.key_ranges != nullptr ? op.key_ranges + 2 * sequence * op.shape.query_len : nullptr};
}

/// How many keys of the block at `first_key` are worth computing: those below `end`, in whole
/// vectors.
MESHPLAN_INLINE int64_t block_columns(int64_t first_key, int64_t end) {
  return least(kKeyBlock, round_up(end - first_key, kLanes));
}

/// Sets row[0, columns) to `value` outside of the visible keys; row[0] is key `first_key`.
MESHPLAN_INLINE void mask_row(float* row, int64_t columns, KeyRange keys, int64_t first_key,
                              float value) {
  const int64_t begin = least(most(keys.begin - first_key, 0), columns);
  const int64_t end = least(most(keys.end - first_key, begin), columns);
  for (int64_t i = 0; i < begin; ++i) row[i] = value;
  for (int64_t i = end; i < columns; ++i) row[i] = value;
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
