#include "cuda_on_cpu/async_copy.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "cuda_on_cpu/block.hpp"

namespace cuda_on_cpu {

namespace {

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

/// Copies of the running thread.
std::vector<Copy>& pending() {
  constexpr std::size_t kMostThreads = 1024;
  static std::array<std::vector<Copy>, kMostThreads> of_thread;
  return of_thread.at(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}

}  // namespace

void copy_async(void* shared, const void* global, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(shared) % bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % bytes != 0)
    throw Fault(fmt::format("an asynchronous copy of {} bytes that are not aligned to it", bytes));
  pending().push_back({shared, global, bytes});
}

void wait_for_copies() {
  for (const Copy& copy : pending()) std::memcpy(copy.to, copy.from, copy.bytes);
  pending().clear();
}

}  // namespace cuda_on_cpu
