#pragma once

#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "device/context.hpp"
#include "kernels/cuda/check.hpp"

namespace meshplan::kernels::cuda {

// CUDA C++ programming guide, section 16.4.3: static and dynamic shared memory of a block together.
constexpr std::size_t kSharedWithoutOptIn = 48 << 10;

/// Static shared memory that a kernel may have beside more dynamic than it gets without opting in:
/// what our reductions over a block hold. The emulator fails a launch that has more in all.
constexpr std::size_t kMostStaticShared = 2 << 10;

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic
};

inline void check_launch(cudaError_t status, const void* kernel) {
  if (status == cudaSuccess) return;
  const char* name = nullptr;
  if (cudaFuncGetName(&name, kernel) != cudaSuccess || name == nullptr) name = "?";
  check(status, ("launch of " + std::string(name)).c_str());
}

/// Enqueues kernel(args...). An empty grid is no work, not an error.
template <class... Params, class... Args>
void launch(const Context& context, const LaunchShape& shape, void (*kernel)(Params...),
            Args&&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  const void* address = reinterpret_cast<const void*>(kernel);
  if (shape.shared_bytes + kMostStaticShared > kSharedWithoutOptIn)
    check_launch(cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shape.shared_bytes)),
                 address);
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = context.stream;
  check_launch(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), address);
}

}  // namespace meshplan::kernels::cuda
