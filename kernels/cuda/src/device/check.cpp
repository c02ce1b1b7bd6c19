#include "kernels/cuda/check.hpp"

#include <fmt/format.h>

namespace meshplan::kernels::cuda {

namespace {

std::string free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return "";
  return fmt::format("; {} of {} MiB of the device's memory are free", free >> 20, total >> 20);
}

}  // namespace

void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw CudaError(fmt::format("{}: {} ({}) at {}:{}{}", call, cudaGetErrorString(status),
                              cudaGetErrorName(status), file, line,
                              status == cudaErrorMemoryAllocation ? free_memory() : ""));
}

}  // namespace meshplan::kernels::cuda
