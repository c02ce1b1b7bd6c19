// Reductions over a warp or a block, in a fixed order: the same bits every time.
#pragma once

#include "device/device.cuh"

namespace meshplan::kernels::cuda {

struct Sum {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
};

struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// What lane (own lane ^ distance) holds; overloads for structs stand beside them.
template <class V>
__device__ V shuffle_xor(V value, int distance) {
  return __shfl_xor_sync(kAllLanes, value, distance);
}

/// Butterfly over the 32 lanes; all of them must call it. If `combine` is commutative to the bit,
/// all lanes get the same bits.
template <class V, class Combine>
__device__ V warp_reduce(V value, const Combine& combine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = combine(value, shuffle_xor(value, distance));
  return value;
}

/// Over the `kThreads` threads of a one-dimensional block (a multiple of 32; 32 may also be one
/// warp of a larger block). Every thread gets the result.
template <int kThreads, class V, class Combine>
__device__ V group_reduce(V value, const Combine& combine) {
  static_assert(kThreads % kWarp == 0);
  value = warp_reduce(value, combine);
  if constexpr (kThreads > kWarp) {
    struct Storage {
      V of_warp[kThreads / kWarp];
    };
    Storage& storage = block_shared<Storage>();
    __syncthreads();  // an earlier reduction may still be read
    if (threadIdx.x % kWarp == 0) storage.of_warp[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = storage.of_warp[0];
    for (int warp = 1; warp < kThreads / kWarp; ++warp)
      value = combine(value, storage.of_warp[warp]);
  }
  return value;
}

/// Sum of `value` over the threads of the block before this one; `total` gets the sum of all.
template <int kThreads>
__device__ int block_exclusive_sum(int value, int& total) {
  struct Storage {
    int of_warp[kThreads / kWarp];
  };
  Storage& storage = block_shared<Storage>();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  int sum = value;  // of this lane and those below
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int below = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
    if (lane >= distance) sum += below;
  }
  __syncthreads();  // an earlier sum may still be read
  if (lane == kWarp - 1) storage.of_warp[warp] = sum;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) {
    if (w < warp) before += storage.of_warp[w];
    total += storage.of_warp[w];
  }
  return before + sum - value;
}

}  // namespace meshplan::kernels::cuda
