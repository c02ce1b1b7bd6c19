#pragma once

#include "core/error.hpp"

namespace meshplan::kernels {

/// A call into CUDA or one of its libraries failed: the device, the driver or its memory. The
/// message names the call, what CUDA said, and the place.
class CudaError : public IoError {
  using IoError::IoError;
};

}  // namespace meshplan::kernels
