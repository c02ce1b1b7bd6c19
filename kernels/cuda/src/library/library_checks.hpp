// Checks of the calls into NVIDIA's libraries, as check() is of those into CUDA.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include "kernels/cuda/check.hpp"

namespace meshplan::kernels::cuda {

/// Throw CudaError "CALL: MESSAGE (NAME) at FILE:LINE" unless `status` is success.
void check(cublasStatus_t status, const char* call, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());
void check(cudnnStatus_t status, const char* call, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

}  // namespace meshplan::kernels::cuda
