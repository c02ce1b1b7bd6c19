// Stands in for libcuda.so.1 as far as cuDNN calls it to plan a graph for a described device: code
// can be "loaded", nothing can run. cuDNN looks all of these names up and calls a few.
#include <cstdint>

namespace {

constexpr int kSuccess = 0;         // CUDA_SUCCESS
constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED
constexpr int kVersion = 13000;     // of CUDA 13.0
void* const kHandle = reinterpret_cast<void*>(std::uintptr_t{8});

}  // namespace

// Without cuda.h: that these functions take more arguments than they look at is not its business.
extern "C" {

int cuInit() {
  return kSuccess;
}
int cuGetErrorName(int /*error*/, const char** name) {
  *name = "no device";
  return kSuccess;
}
int cuGetErrorString(int /*error*/, const char** text) {
  *text = "the stand-in of the driver has no device";
  return kSuccess;
}
int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}
int cuDeviceGet(int* device) {
  *device = 0;
  return kSuccess;
}
int cuLibraryLoadData(void** library) {
  *library = kHandle;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel) {
  *kernel = kHandle;
  return kSuccess;
}
int cuLibraryUnload() {
  return kSuccess;
}
int cuKernelSetAttribute() {
  return kSuccess;
}

#define NOT_SUPPORTED(name) \
  int name() {              \
    return kNotSupported;   \
  }
NOT_SUPPORTED(cuCtxGetCurrent)
NOT_SUPPORTED(cuCtxGetLimit)
NOT_SUPPORTED(cuCtxPopCurrent)
NOT_SUPPORTED(cuCtxPushCurrent)
NOT_SUPPORTED(cuGetProcAddress)
NOT_SUPPORTED(cuGetProcAddress_v2)
NOT_SUPPORTED(cuGetExportTable)
NOT_SUPPORTED(cuDeviceGetAttribute)
NOT_SUPPORTED(cuKernelGetAttribute)
NOT_SUPPORTED(cuLaunchCooperativeKernel)
NOT_SUPPORTED(cuLaunchKernel)
NOT_SUPPORTED(cuLaunchKernelEx)
NOT_SUPPORTED(cuLibraryLoadFromFile)
NOT_SUPPORTED(cuLinkAddData)
NOT_SUPPORTED(cuLinkComplete)
NOT_SUPPORTED(cuLinkCreate)
NOT_SUPPORTED(cuLinkDestroy)
NOT_SUPPORTED(cuOccupancyMaxPotentialClusterSize)
NOT_SUPPORTED(cuStreamGetCtx)
#undef NOT_SUPPORTED

}  // extern "C"
