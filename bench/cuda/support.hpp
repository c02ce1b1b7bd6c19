// What the GPU benchmarks share: operands, and the time of an operation on the device.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/handles.hpp"
#include "kernels/cuda_backend.hpp"

namespace meshplan::bench {

/// What a benchmark ends with where there is no GPU: "skipped", as of tests.
inline constexpr int kSkipped = 77;

/// Says so, and why, where this machine has no GPU.
inline bool has_gpu() {
  const kernels::CudaDevices devices = kernels::cuda_devices();
  if (devices.count == 0) std::printf("no GPU: nothing is measured (%s)\n", devices.reason.c_str());
  return devices.count > 0;
}

inline float widened(std::uint16_t bfloat16) {
  return std::bit_cast<float>(std::uint32_t{bfloat16} << 16);
}

/// Device memory with random bf16 values in [-1, 1], the same ones every time, in bf16 or fp32:
/// products of zeros draw less power, and so run faster, than those of real numbers.
class RandomOperand {
 public:
  RandomOperand(kernels::Backend& backend, std::int64_t count, DType dtype = DType::BF16)
      : backend_(backend), data_(backend.allocate(count * size_of(dtype))) {
    std::vector<std::uint16_t> host(static_cast<std::size_t>(count));
    std::uint32_t state = 1;
    for (std::uint16_t& value : host) {
      state = state * 1664525U + 1013904223U;
      // sign and mantissa at random, exponents 2^-4 to 2^-1
      value =
          static_cast<std::uint16_t>((state >> 16 & 0x807fU) | (123U + (state >> 13 & 3U)) << 7);
    }
    std::vector<float> wide;
    if (dtype == DType::F32) std::ranges::transform(host, std::back_inserter(wide), widened);
    const void* const values = wide.empty() ? static_cast<const void*>(host.data()) : wide.data();
    backend.copy_to_device(data_, values, count * size_of(dtype));
    backend.synchronize();
  }
  ~RandomOperand() { backend_.free(data_); }
  RandomOperand(const RandomOperand&) = delete;
  RandomOperand& operator=(const RandomOperand&) = delete;
  void* data() const { return data_; }

 private:
  kernels::Backend& backend_;
  void* data_;
};

/// Device memory, zeroed.
class Memory {
 public:
  Memory(kernels::Backend& backend, std::int64_t bytes)
      : backend_(backend), data_(backend.allocate(std::max<std::int64_t>(bytes, 1))) {}
  ~Memory() { backend_.free(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }

 private:
  kernels::Backend& backend_;
  void* data_;
};

/// One run, with the scratch that it needs.
inline void run_once(kernels::CudaBackend& backend, const kernels::Operation& op) {
  const std::int64_t bytes = backend.scratch_bytes(op);
  const Memory scratch(backend, bytes);
  backend.set_scratch(scratch.data(), bytes);
  backend.run(op);
  backend.synchronize();
  backend.set_scratch(nullptr, 0);
}

/// Seconds on the device: median of 21 runs, each between two events, after 5 to warm up.
inline double seconds_of(kernels::CudaBackend& backend, const kernels::Operation& op) {
  namespace cuda = kernels::cuda;
  constexpr int kWarmUp = 5;
  constexpr int kRuns = 21;
  const std::int64_t bytes = backend.scratch_bytes(op);
  const Memory scratch(backend, bytes);
  backend.set_scratch(scratch.data(), bytes);
  for (int i = 0; i < kWarmUp; ++i) backend.run(op);
  const cuda::Event begin = cuda::make_event(cuda::EventTiming::On);
  const cuda::Event end = cuda::make_event(cuda::EventTiming::On);
  std::array<float, kRuns> ms{};
  for (float& time : ms) {
    cuda::check(cudaEventRecord(begin.get(), backend.stream()), "cudaEventRecord");
    backend.run(op);
    cuda::check(cudaEventRecord(end.get(), backend.stream()), "cudaEventRecord");
    backend.synchronize();
    cuda::check(cudaEventElapsedTime(&time, begin.get(), end.get()), "cudaEventElapsedTime");
  }
  backend.set_scratch(nullptr, 0);
  std::nth_element(ms.begin(), ms.begin() + kRuns / 2, ms.end());
  return double{ms.at(kRuns / 2)} / 1e3;
}

}  // namespace meshplan::bench
