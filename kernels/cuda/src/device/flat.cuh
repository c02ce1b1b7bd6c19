// Work on flat ranges: every element on its own.
#pragma once

#include "device/device.cuh"
#include "device/dispatch.hpp"
#include "device/launch.cuh"

namespace meshplan::kernels::cuda {

constexpr int kFlatThreads = 256;     // 8 blocks fill the 2048 threads of an SM
constexpr int kFlatBlocksPerSm = 16;  // two waves: evens out SMs that start late

/// Calls body(i, Count<width>) for packs and body(i, Count<1>) for the elements after the last one.
template <int width, class Body>
__device__ void for_each_pack(std::int64_t count, const Body& body) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packs = count / width;
  for (std::int64_t i = thread; i < packs; i += threads) body(i * width, Count<width>{});
  if constexpr (width > 1) {
    const std::int64_t i = packs * width + thread;
    if (i < count) body(i, Count<1>{});
  }
}

/// One grid-stride pass over `count` elements in packs of `width`.
inline LaunchShape flat_shape(const Context& context, std::int64_t count, int width) {
  const std::int64_t wanted = ceil_div(ceil_div(count, width), kFlatThreads);
  const std::int64_t most = std::int64_t{context.num_sms} * kFlatBlocksPerSm;
  return {.grid = dim3(static_cast<unsigned>(wanted < most ? wanted : most)),
          .block = dim3(kFlatThreads)};
}

}  // namespace meshplan::kernels::cuda
