// Products of a warp with rows that a query chose, and walks over those who chose a key.
#pragma once

#include "attention/chosen_keys.hpp"
#include "device/reduce.cuh"
#include "device/rows.cuh"

namespace meshplan::kernels::cuda {

constexpr int kChosenWarps = kRowThreads / kWarp;

/// The first i in [0, count) with values[i] >= value; count if there is none.
template <class Value>
__device__ std::int64_t first_from(const std::int32_t* values, std::int64_t count, Value value) {
  std::int64_t low = 0;
  for (std::int64_t high = count; low < high;) {
    const std::int64_t middle = (low + high) / 2;
    if (values[middle] >= value)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// How many choices a query has: -1 fills the rest.
__device__ inline int count_choices(const std::int32_t* choices, int top_k) {
  int low = 0;
  for (int high = top_k; low < high;) {
    const int middle = (low + high) / 2;
    if (choices[middle] < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// a . b by a warp; all lanes get the same bits.
template <class A, class B>
__device__ float warp_dot(const A* a, const B* b, int size) {
  float sum = 0.0F;
  for (int e = static_cast<int>(threadIdx.x) % kWarp; e < size; e += kWarp)
    sum += to_float(a[e]) * to_float(b[e]);
  return warp_reduce(sum, Sum());
}

/// to[e] = from[e] as fp32, by the block; a barrier completes it.
template <class T>
__device__ void hold_row(float* to, const T* from, int size) {
  for (int e = static_cast<int>(threadIdx.x); e < size; e += kRowThreads) to[e] = to_float(from[e]);
}

/// body(place) for the places of those who chose the key of row `row`: warp w does numbers w,
/// w + kChosenWarps, ... of them, ascending.
template <class Body>
__device__ void for_each_chooser(const ChosenKeys& chosen, std::int64_t row, const Body& body) {
  const std::int64_t end = first_from(chosen.places.keys, chosen.count, row + 1);
  for (std::int64_t i = first_from(chosen.places.keys, chosen.count, row) + threadIdx.x / kWarp;
       i < end; i += kChosenWarps)
    body(std::int64_t{chosen.places.items[i]});
}

/// to[e] = the sum over warps, ascending, of sums (warps, stride) from column `begin` on.
template <class T>
__device__ void store_warp_sums(T* to, const float* sums, int stride, int begin, int size) {
  for (int e = static_cast<int>(threadIdx.x); e < size; e += kRowThreads) {
    float sum = 0.0F;
    for (int warp = 0; warp < kChosenWarps; ++warp) sum += sums[warp * stride + begin + e];
    to[e] = from_float<T>(sum);
  }
}

}  // namespace meshplan::kernels::cuda
