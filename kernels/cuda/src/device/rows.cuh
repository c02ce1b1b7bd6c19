// Work on the rows of matrices.
#pragma once

#include "device/device.cuh"
#include "device/dispatch.hpp"
#include "device/launch.cuh"
#include "device/row_ranges.hpp"

namespace meshplan::kernels::cuda {

constexpr int kRowThreads = kWarpsPerBlock * kWarp;  // 8 blocks fill the 2048 threads of an SM
constexpr int kPacksPerThread = 4;   // enough loads in flight, and row constants are read once
constexpr int kMaxRowTiles = 65535;  // gridDim.y

/// Columns of one row among `kThreads` threads: packs of `width`, then single elements. A column
/// always belongs to the same thread. `thread` counts from 0.
template <int width, class Body>
__device__ void for_each_column_pack(std::int64_t size, std::int64_t thread, std::int64_t threads,
                                     const Body& body) {
  const std::int64_t packs = size / width;
  for (std::int64_t i = thread; i < packs; i += threads) body(i * width, Count<width>{});
  if constexpr (width > 1) {
    for (std::int64_t i = packs * width + thread; i < size; i += threads) body(i, Count<1>{});
  }
}

/// Row t of an operand that may be absent.
template <class T, class Void>
__device__ T* row_or_null(Void* data, std::int64_t t, std::int64_t stride) {
  return data == nullptr ? nullptr : static_cast<T*>(data) + t * stride;
}

/// value + residual as it is stored in `sum`: what a norm after an addition works on.
template <int n, class T>
__device__ Pack<n> add_and_keep(const Pack<n>& value, const T* residual, T* sum) {
  const auto other = load_pack<n>(residual);
  Pack<n> total;
  for (int j = 0; j < n; ++j) total[j] = value[j] + other[j];
  store_pack(sum, total);
  for (int j = 0; j < n; ++j) total[j] = to_float(from_float<T>(total[j]));
  return total;
}

/// Row blockIdx.x, shared by the blocks of its gridDim.y tiles: for kernels whose columns are
/// independent.
template <int width, class Body>
__device__ void for_each_tile_pack(std::int64_t size, const Body& body) {
  for_each_column_pack<width>(size, std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x,
                              std::int64_t{gridDim.y} * blockDim.x, body);
}

/// The grid of such a kernel.
inline LaunchShape tile_shape(std::int64_t rows, std::int64_t size, int width) {
  if (size == 0) return {.grid = dim3(0), .block = dim3(1)};
  const std::int64_t packs = ceil_div(size, width);
  const std::int64_t warps = ceil_div(packs, kWarp);
  const std::int64_t threads = warps * kWarp < kRowThreads ? warps * kWarp : kRowThreads;
  const std::int64_t tiles = ceil_div(packs, threads * kPacksPerThread);
  return {.grid = dim3(static_cast<unsigned>(rows),
                       static_cast<unsigned>(tiles < kMaxRowTiles ? tiles : kMaxRowTiles)),
          .block = dim3(static_cast<unsigned>(threads))};
}

/// kThreads threads work on a row together: a warp, several of which share a block, or a block.
template <int kThreads>
struct RowGroup {
  static constexpr int kRowsPerBlock = kRowThreads / kThreads;
  __device__ static int thread() { return static_cast<int>(threadIdx.x) % kThreads; }
  __device__ static int group() { return static_cast<int>(threadIdx.x) / kThreads; }
};

/// Calls body(Count<kWarp>{}) for short rows, body(Count<kRowThreads>{}) for others.
template <class Body>
void with_row_group(std::int64_t size, const Body& body) {
  if (size <= kWarpRow)
    body(Count<kWarp>{});
  else
    body(Count<kRowThreads>{});
}

}  // namespace meshplan::kernels::cuda
