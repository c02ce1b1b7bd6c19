// Sums over rows in two stages, both in a fixed order that depends on the sizes alone: each block
// sums a range of rows into its row of `partials` (shared memory meanwhile), then sum_partials adds
// those.
#pragma once

#include "row_ranges.hpp"
#include "rows.cuh"

namespace meshplan::kernels::cuda {

/// Bytes of shared memory for `sums` fp32 numbers. @throws InvariantError if a block has less
std::size_t shared_for_sums(const Context& context, std::int64_t sums);

/// out[column] (+)= sum over p of partials[p * stride + column].
void enqueue_sum_partials(const Context& context, const float* partials, std::int64_t num_partials,
                          std::int64_t stride, std::int64_t columns, float* out, bool accumulate);

}  // namespace meshplan::kernels::cuda
