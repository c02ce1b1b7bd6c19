#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/kernel_table.hpp"

namespace meshplan::kernels {
class Matmul;
}

namespace meshplan::kernels::cpu {

/// What operations of one backend may use. Passed to every operator.
struct Context {
  int num_threads = 1;
  const KernelTable& table;
  Matmul& matmul;
  std::span<std::byte> scratch = {};  // aligned to 64 bytes, shared by all operations

  /// One thread's part of the scratch when each takes `floats`.
  float* thread_scratch(int thread, std::int64_t floats) const {
    return reinterpret_cast<float*>(scratch.data()) + thread * floats;
  }
};

/// @throws InvariantError if set_scratch gave less than `bytes`
void require_scratch(const Context& context, std::int64_t bytes);

/// @throws InvariantError for a type that kernels do not compute in
void require_float(DType dtype);

}  // namespace meshplan::kernels::cpu
