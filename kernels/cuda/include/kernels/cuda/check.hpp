#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda_error.hpp"

namespace meshplan::kernels::cuda {

/// Throws CudaError "CALL: MESSAGE (NAME) at FILE:LINE" unless `status` is success. Running out of
/// device memory also says how much is free. CUDA's sticky per-thread error is cleared, so that the
/// next check does not report this one again.
void check(cudaError_t status, const char* call, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

}  // namespace meshplan::kernels::cuda
