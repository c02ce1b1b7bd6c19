#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/dtype.hpp"
#include "core/error.hpp"

namespace meshplan::kernels::cuda {

/// Where operations run and what they may use. Passed to every launcher.
struct Context {
  int device = 0;
  int num_sms = 1;                // streaming multiprocessors
  int compute_capability = 80;    // 10 * major + minor
  int max_shared_bytes = 49152;   // of one block, after opting in
  cudaStream_t stream = nullptr;  // never the legacy default stream
  std::span<std::byte> scratch;   // aligned to 64 bytes, shared by all operations of the stream
  unsigned* tickets = nullptr;    // kTickets (row_ranges.hpp), zero between kernels of the stream
};

/// @throws InvariantError if set_scratch gave less than `bytes`
void require_scratch(const Context& context, std::int64_t bytes);

inline void require_float(DType dtype) {
  require_invariant(dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16,
                    "CUDA kernels compute in fp32, bf16 or fp16");
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace meshplan::kernels::cuda
