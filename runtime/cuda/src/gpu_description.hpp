#pragma once

#include "program/calibration/calibration.hpp"

namespace meshplan::runtime::cuda {

/// The current device of this process, as its driver and the kernel describe it; device memory in
/// use is counted as this process's. @throws CudaError
program::GpuDescription describe_gpu(int device_index);

}  // namespace meshplan::runtime::cuda
