#include <cuda_runtime.h>

#include <fmt/format.h>

#include "kernels/cuda_backend.hpp"

namespace meshplan::kernels {

namespace {

/// 13000 -> "13.0"
std::string version_name(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// CUDA's own words do not tell a missing driver from an old one.
std::string driver_problem() {
  int driver = 0;
  int runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return "there is no NVIDIA driver on this machine";
  cudaRuntimeGetVersion(&runtime);
  return fmt::format("the NVIDIA driver is too old: it knows CUDA {}, this program needs {}",
                     version_name(driver), version_name(runtime));
}

}  // namespace

CudaDevices cuda_devices() {
  CudaDevices devices;
  const cudaError_t status = cudaGetDeviceCount(&devices.count);
  if (status == cudaSuccess && devices.count > 0) return devices;
  cudaGetLastError();
  devices.count = 0;
  if (status == cudaErrorInsufficientDriver)
    devices.reason = driver_problem();
  else
    devices.reason = status == cudaSuccess ? "CUDA sees no device" : cudaGetErrorString(status);
  return devices;
}

}  // namespace meshplan::kernels
