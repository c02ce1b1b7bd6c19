// How kernels that sum over rows divide them among blocks: by the sizes alone, so that results
// repeat on every GPU. No CUDA here.
#pragma once

#include <cstdint>

namespace meshplan::kernels::cuda {

constexpr std::int64_t kMaxPartials = 256;  // about 2 blocks for each of the 132 SMs of an H100
constexpr std::int64_t kWarpRow = 1024;     // rows up to here are a warp's work, not a block's
constexpr int kWarpsPerBlock = 8;
constexpr int kPartialsAtOnce = 16;  // rows of partial sums that a block adds up

/// Context::tickets: one for each group of blocks and one for the groups (sum_over_blocks).
constexpr int kTickets = 1 + static_cast<int>(kMaxPartials) / kPartialsAtOnce;

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

/// Ranges of the backward pass of a norm over rows of `size` features.
constexpr RowRanges norm_ranges(std::int64_t rows, std::int64_t size) {
  return split_rows(rows, size <= kWarpRow ? kWarpsPerBlock : 1);
}
/// Ranges of the norm of query and key heads, a warp each.
constexpr RowRanges head_norm_ranges(std::int64_t rows, std::int64_t heads) {
  return split_rows(rows * heads, kWarpsPerBlock);
}

}  // namespace meshplan::kernels::cuda
