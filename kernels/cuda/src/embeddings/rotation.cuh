#pragma once

#include "device/rows.cuh"

namespace meshplan::kernels::cuda {

/// Rotates elements i to i + width - 1 of a head with those `half` after them, in place.
/// @param cosine  of the row's position: `half` cosines, then as many sines
/// @param sign  -1 rotates back
template <int width, class T>
__device__ void rotate_pairs(T* head, const float* cosine, std::int64_t half, std::int64_t i,
                             float sign) {
  T* first = head + i;
  const auto a = load_pack<width>(first);
  const auto b = load_pack<width>(first + half);
  const auto c = load_pack<width>(cosine + i);
  const auto s = load_pack<width>(cosine + half + i);
  Pack<width> rotated_a;
  Pack<width> rotated_b;
  for (int j = 0; j < width; ++j) {
    rotated_a[j] = a[j] * c[j] - b[j] * (sign * s[j]);
    rotated_b[j] = b[j] * c[j] + a[j] * (sign * s[j]);
  }
  store_pack(first, rotated_a);
  store_pack(first + half, rotated_b);
}

}  // namespace meshplan::kernels::cuda
