#pragma once

#include "device/kernel_table.hpp"
#include "simd/vec.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

constexpr int64_t kRowsPerPartialSum = 64;

/// out[i] (+)= sum over rows of term(row, i), for i in `columns`: partial sums of 64 rows, added in
/// order, so that the rounding error grows with rows / 64 + 64 and not with rows.
template <class Term>
MESHPLAN_INLINE void column_sums(float* out, Range columns, int64_t rows, bool accumulate,
                                 Term term) {
  constexpr int64_t kVecs = 4;  // columns side by side: whole cache lines of every row
  int64_t i = columns.begin;
  const auto block = [&](int64_t first, auto part, auto num_vecs) {
    constexpr int64_t kCount = decltype(num_vecs)::value;
    Vec total[kCount];
    for (int64_t v = 0; v < kCount; ++v)
      total[v] = accumulate ? load(out + first + v * kLanes, part) : Vec{};
    for (int64_t begin = 0; begin < rows; begin += kRowsPerPartialSum) {
      const int64_t end = begin + kRowsPerPartialSum < rows ? begin + kRowsPerPartialSum : rows;
      Vec partial[kCount] = {};
      for (int64_t row = begin; row < end; ++row)
        for (int64_t v = 0; v < kCount; ++v) partial[v] += term(row, first + v * kLanes, part);
      for (int64_t v = 0; v < kCount; ++v) total[v] += partial[v];
    }
    for (int64_t v = 0; v < kCount; ++v) store(out + first + v * kLanes, total[v], part);
  };
  for (; i + kVecs * kLanes <= columns.end; i += kVecs * kLanes) block(i, Full{}, Count<kVecs>{});
  for_each_vec(i, columns.end, [&](int64_t first, auto part) { block(first, part, Count<1>{}); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
