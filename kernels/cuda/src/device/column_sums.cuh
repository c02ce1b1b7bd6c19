// Sums over rows in two stages, both in a fixed order that depends on the sizes alone: each block
// sums a range of rows into its row of `partials`, then those are added.
#pragma once

#include "device/row_ranges.hpp"
#include "device/rows.cuh"

namespace meshplan::kernels::cuda {

/// Bytes of shared memory for `sums` fp32 numbers. @throws InvariantError if a block has less
std::size_t shared_for_sums(const Context& context, std::int64_t sums);

/// out[column] (+)= sum over p of partials[p * stride + column].
void enqueue_sum_partials(const Context& context, const float* partials, std::int64_t num_partials,
                          std::int64_t stride, std::int64_t columns, float* out, bool accumulate);

/// Where sums of columns go: those before `split` to one result, the others to another; null ones
/// nowhere.
struct ColumnResults {
  float* first = nullptr;
  float* second = nullptr;
  std::int64_t split = 0;
  bool accumulate = false;
  __device__ void put(std::int64_t column, float sum) const {
    float* out = column < split ? first : second;
    if (out == nullptr) return;
    if (column >= split) column -= split;
    out[column] = accumulate ? out[column] + sum : sum;
  }
};

/// Whether this block is the last of `blocks` that come here with this ticket; what the others
/// wrote before is then seen. The ticket is zero again afterwards. (The example of memory fences in
/// the CUDA C++ programming guide, section 7.5.)
__device__ inline bool comes_last(unsigned* ticket, unsigned blocks) {
  struct Storage {
    bool last;
  };
  Storage& storage = block_shared<Storage>();
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    storage.last = atomicAdd(ticket, 1U) == blocks - 1;
    if (storage.last) *ticket = 0;
    __threadfence();
  }
  __syncthreads();
  return storage.last;
}

/// Calls store(column, sums) for the sums over `count` rows, in ascending order.
template <int width, class Store>
__device__ void add_rows(const float* rows, std::int64_t stride, std::int64_t count,
                         std::int64_t columns, const Store& store) {
  for_each_column_pack<width>(columns, threadIdx.x, blockDim.x, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    Pack<kN> sum{};
#pragma unroll 4
    for (std::int64_t row = 0; row < count; ++row) {
      const auto value = load_pack<kN>(rows + row * stride + i);
      for (int j = 0; j < kN; ++j) sum[j] += value[j];
    }
    store(i, sum);
  });
}

/// Adds up the rows of `partials` (blocks, columns), of which each block has written its own, in
/// the kernel that made them: the block that comes last of 16 adds up theirs, the one that comes
/// last of those adds up these. Who it is makes no difference to the sums.
template <int width>
__device__ void sum_over_blocks(float* partials, std::int64_t columns, unsigned* tickets,
                                const ColumnResults& results) {
  const std::int64_t blocks = gridDim.x;
  const std::int64_t groups = (blocks + kPartialsAtOnce - 1) / kPartialsAtOnce;
  const std::int64_t group = blockIdx.x / kPartialsAtOnce;
  const std::int64_t left = blocks - group * kPartialsAtOnce;
  const std::int64_t members = left < kPartialsAtOnce ? left : kPartialsAtOnce;
  float* rows = partials + group * kPartialsAtOnce * columns;
  if (!comes_last(tickets + 1 + group, static_cast<unsigned>(members))) return;
  add_rows<width>(rows, columns, members, columns,
                  [&](std::int64_t i, const auto& sum) { store_pack(rows + i, sum); });
  if (!comes_last(tickets, static_cast<unsigned>(groups))) return;
  add_rows<width>(partials, kPartialsAtOnce * columns, groups, columns,
                  [&](std::int64_t i, const auto& sum) {
                    for (int j = 0; j < static_cast<int>(sizeof sum / sizeof(float)); ++j)
                      results.put(i + j, sum[j]);
                  });
}

}  // namespace meshplan::kernels::cuda
