// Sums over rows in two stages, both in a fixed order that depends on the sizes alone: each block
// sums a range of rows into its row of `partials` (shared memory meanwhile), then sum_partials adds
// those.
#pragma once

#include "rows.cuh"

namespace meshplan::kernels::cuda {

constexpr std::int64_t kMaxPartials = 512;  // about 4 blocks for each of the 132 SMs of an H100

/// How the rows are split.
struct RowRanges {
  std::int64_t rows_per_block = 0;
  std::int64_t num_blocks = 0;  // also the rows of `partials`
};
/// At least 8 rows a block, so that the partial sums are a small part of the traffic.
inline RowRanges split_rows(std::int64_t rows, int rows_at_once) {
  const std::int64_t least = std::int64_t{8} * rows_at_once;
  const std::int64_t even = ceil_div(rows, kMaxPartials);
  const std::int64_t rows_per_block = even > least ? even : least;
  return {rows_per_block, ceil_div(rows, rows_per_block)};
}

/// Bytes of shared memory for `sums` fp32 numbers. @throws InvariantError if a block has less
std::size_t shared_for_sums(const Context& context, std::int64_t sums);

/// out[column] (+)= sum over p of partials[p * stride + column].
void enqueue_sum_partials(const Context& context, const float* partials, std::int64_t num_partials,
                          std::int64_t stride, std::int64_t columns, float* out, bool accumulate);

}  // namespace meshplan::kernels::cuda
