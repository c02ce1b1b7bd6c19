#include "library/library_checks.hpp"

#include <array>
#include <fmt/format.h>

namespace meshplan::kernels::cuda {

void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaError(fmt::format("{}: {} ({}) at {}:{}", call, cublasLtGetStatusString(status),
                              cublasLtGetStatusName(status), file, line));
}

void check(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> details{};
  cudnnGetLastErrorString(details.data(), details.size());
  throw CudaError(fmt::format("{}: {} ({}) at {}:{}", call, details.data(),
                              cudnnGetErrorString(status), file, line));
}

}  // namespace meshplan::kernels::cuda
