// The largest magnitude of what a kernel writes, kept for the scale of its FP8 codes
// (QuantizeFloat8), so that these need no pass of their own to find it.
#pragma once

#include "device/launch.cuh"
#include "device/reduce.cuh"

namespace meshplan::kernels::cuda {

/// Before the kernel: it only ever raises the number.
inline void clear_largest(const Context& context, float* largest) {
  if (largest == nullptr) return;
  check(cudaMemsetAsync(largest, 0, sizeof(float), context.stream), "cudaMemsetAsync");
}

/// The larger magnitude; NaN is never larger.
template <int n>
__device__ float larger(float largest, const Pack<n>& pack) {
  for (int j = 0; j < n; ++j) largest = fmaxf(largest, fabsf(pack[j]));
  return largest;
}

/// Raises `largest` to `max` as T stores it: rounding keeps the order of numbers, and so do the
/// bits of those that are not negative. A maximum does not depend on the order in which blocks come
/// to it. Most find a larger one there and leave it, without an atomic; a number that is read too
/// early is too small and costs one.
template <class T>
__device__ void raise_largest(float* largest, float max) {
  const float stored = to_float(from_float<T>(max));
  if (stored > __ldcg(largest)) atomicMax(reinterpret_cast<int*>(largest), __float_as_int(stored));
}

/// From what each thread of a group has written. All of them must call it.
/// @param largest  or null
template <class T, int kThreads>
__device__ void keep_largest(float* largest, float max) {
  if (largest == nullptr) return;
  max = group_reduce<kThreads>(max, Max());
  if (threadIdx.x % kThreads == 0) raise_largest<T>(largest, max);
}

/// The same for a block of any number of warps.
template <class T>
__device__ void keep_largest_of_block(float* largest, float max) {
  if (largest == nullptr) return;
  struct Storage {
    float of_warp[kWarp];
  };
  Storage& storage = block_shared<Storage>();
  max = warp_reduce(max, Max());
  if (threadIdx.x % kWarp == 0) storage.of_warp[threadIdx.x / kWarp] = max;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp)
    max = fmaxf(max, storage.of_warp[warp]);
  raise_largest<T>(largest, max);
}

}  // namespace meshplan::kernels::cuda
