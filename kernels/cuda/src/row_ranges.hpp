// How kernels that sum over rows divide them among blocks: by the sizes alone, so that results
// repeat on every GPU. No CUDA here.
#pragma once

#include <cstdint>

namespace meshplan::kernels::cuda {

constexpr std::int64_t kMaxPartials = 512;  // about 4 blocks for each of the 132 SMs of an H100
constexpr std::int64_t kWarpRow = 512;      // rows up to here are a warp's work, not a block's
constexpr int kWarpsPerBlock = 8;

struct RowRanges {
  std::int64_t rows_per_block = 0;
  std::int64_t num_blocks = 0;  // also the rows of partial sums
};

/// At least 8 rows a block, so that the partial sums are a small part of the traffic.
constexpr RowRanges split_rows(std::int64_t rows, int rows_at_once) {
  const std::int64_t least = std::int64_t{8} * rows_at_once;
  const std::int64_t even = (rows + kMaxPartials - 1) / kMaxPartials;
  const std::int64_t rows_per_block = even > least ? even : least;
  return {rows_per_block, (rows + rows_per_block - 1) / rows_per_block};
}

/// Of the backward pass of a norm over rows of `size` features.
constexpr RowRanges norm_ranges(std::int64_t rows, std::int64_t size) {
  return split_rows(rows, size <= kWarpRow ? kWarpsPerBlock : 1);
}
/// Of the norm of query and key heads, a warp each.
constexpr RowRanges head_norm_ranges(std::int64_t rows, std::int64_t heads) {
  return split_rows(rows * heads, kWarpsPerBlock);
}

}  // namespace meshplan::kernels::cuda
