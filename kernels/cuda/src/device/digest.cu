#include <array>
#include <numeric>

#include "device/digest.hpp"
#include "device/launch.cuh"
#include "device/reduce.cuh"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlocks = kDigestScratchBytes / 8;

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014), by which every bit counts.
__device__ std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// sums[block] = the sum of what the block's numbers are mixed to; which block has which does not
/// matter, for integers add up in any order.
__global__ void digest_kernel(const Bits bits, std::uint64_t* sums) {
  const auto* data = static_cast<const std::uint16_t*>(bits.data);
  const std::int64_t count = bits.rows * bits.columns;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  std::uint64_t sum = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::uint64_t value = data[i / bits.columns * bits.stride + i % bits.columns];
    if (value != 0) sum += mixed(static_cast<std::uint64_t>(i) << 16 | value);
  }
  sum = group_reduce<kThreads>(sum, Sum());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

std::uint64_t digest_of(const Context& context, std::span<const Bits> parts) {
  require_scratch(context, kDigestScratchBytes);
  auto* sums = reinterpret_cast<std::uint64_t*>(context.scratch.data());
  std::uint64_t digest = 0;
  for (const Bits& bits : parts) {
    const std::int64_t needed = ceil_div(bits.rows * bits.columns, kThreads);
    const std::int64_t blocks = needed < kBlocks ? needed : kBlocks;
    launch(context, {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)},
           digest_kernel, bits, sums);
    std::array<std::uint64_t, kBlocks> on_host{};
    check(cudaMemcpyAsync(on_host.data(), sums, static_cast<std::size_t>(blocks) * sizeof *sums,
                          cudaMemcpyDefault, context.stream),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(context.stream), "cudaStreamSynchronize");
    // Equal numbers at equal places of two parts must not look like the same two exchanged.
    digest = 3 * digest + std::accumulate(on_host.begin(), on_host.end(), std::uint64_t{0});
  }
  return digest;
}

bool is_capturing(const Context& context) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(context.stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace meshplan::kernels::cuda
