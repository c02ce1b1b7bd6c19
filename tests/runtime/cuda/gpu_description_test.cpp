// What is said about the GPUs of a machine, and why there are none.
#include "gpu_description.hpp"

#include <catch2/catch.hpp>

#include "kernels/cuda_backend.hpp"
#include "runtime/cuda/fakes.hpp"

namespace meshplan::test {

using Catch::Matchers::Contains;

TEST_CASE("A driver that is too old is told from one that is missing", "[runtime][cuda]") {
  reset_fakes();
  fake_cuda().device_count_status = cudaErrorInsufficientDriver;
  fake_cuda().num_devices = 0;
  fake_cuda().driver_version = 12020;
  CHECK(kernels::cuda_devices().reason ==
        "the NVIDIA driver is too old: it knows CUDA 12.2, this program needs 13.0");
  fake_cuda().driver_version = 0;
  CHECK(kernels::cuda_devices().reason == "there is no NVIDIA driver on this machine");
  CHECK(kernels::cuda_devices().count == 0);
  fake_cuda().device_count_status = cudaErrorNoDevice;
  CHECK_THAT(kernels::cuda_devices().reason, Contains("no CUDA-capable device"));
  fake_cuda() = {};
  CHECK(kernels::cuda_devices().count == 2);
  CHECK(kernels::cuda_devices().reason.empty());
}

TEST_CASE("A GPU is described with its ways to the others", "[runtime][cuda]") {
  reset_fakes();
  fake_cuda().num_devices = 3;
  const program::GpuDescription gpu = runtime::cuda::describe_gpu(1);
  CHECK(gpu.name == "a fake GPU");
  CHECK(gpu.capability == "9.0");
  CHECK(gpu.num_units == 132);
  CHECK(gpu.memory_bytes == 80.0 * (1 << 30));
  CHECK(gpu.process_bytes == 1.0 * (1 << 30));
  CHECK(gpu.pci_bus == "0000:20:00.0");
  REQUIRE(gpu.peers.size() == 2);
  CHECK(gpu.peers[0].pci_bus == "0000:10:00.0");
  CHECK(gpu.peers[1].pci_bus == "0000:30:00.0");
  CHECK(gpu.peers[0].access);
  CHECK(gpu.peers[0].native_atomics);
  fake_cuda().peers_have_atomics = false;
  CHECK_FALSE(runtime::cuda::describe_gpu(1).peers[0].native_atomics);
}

}  // namespace meshplan::test
