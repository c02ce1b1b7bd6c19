// For the emulated backend and, in a program of its own, for the one that runs on a GPU.
#include <cstdio>
#include <cstdlib>

#include "kernels/backends.hpp"
#include "kernels/cuda_backend.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in tests/CMakeLists.txt

}  // namespace

std::vector<std::unique_ptr<Backend>> tested_backends() {
  const CudaDevices devices = cuda_devices();
  if (devices.count == 0) {
    std::printf("skipped: no GPU (%s)\n", devices.reason.c_str());
    std::fflush(stdout);
    std::_Exit(kSkipped);
  }
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(make_cuda_backend(0));
  // The emulator has our own kernels only; a GPU also has NVIDIA's, so that ours are asked for.
  if (backends.front()->name().find("emulator") == std::string::npos)
    backends.push_back(
        make_cuda_backend(0, {.autotune_gemm = true, .attention = AttentionLibrary::Own}));
  return backends;
}

}  // namespace meshplan::kernels::test
