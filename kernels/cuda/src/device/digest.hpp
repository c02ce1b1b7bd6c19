// Whether two runs of a kernel gave the same bits, found without room for either's result.
#pragma once

#include <cstdint>
#include <span>

#include "device/context.hpp"

namespace meshplan::kernels::cuda {

/// 16-bit numbers in device memory.
struct Bits {
  const void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  // from row to row, in numbers
};

constexpr std::int64_t kDigestScratchBytes = 2048;

/// Equal bits give equal numbers, others hardly ever: the sum of a hash of each number and its
/// place. 0 if all bits are 0. The host waits; not while the stream is captured.
std::uint64_t digest_of(const Context& context, std::span<const Bits> parts);

bool is_capturing(const Context& context);

}  // namespace meshplan::kernels::cuda
