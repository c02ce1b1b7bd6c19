#include "gpu_description.hpp"

#include <cuda_runtime.h>

#include <fmt/format.h>

#include "kernels/cuda/check.hpp"
#include "os/pci_device.hpp"

namespace meshplan::runtime::cuda {
namespace {

using kernels::cuda::check;

std::string pci_bus_of(int device) {
  char text[32] = {};
  check(cudaDeviceGetPCIBusId(text, sizeof text, device), "cudaDeviceGetPCIBusId");
  return text;
}

int peer_attribute(cudaDeviceP2PAttr which, int from, int to) {
  int value = 0;
  check(cudaDeviceGetP2PAttribute(&value, which, from, to), "cudaDeviceGetP2PAttribute");
  return value;
}

}  // namespace

program::GpuDescription describe_gpu(int device_index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device_index), "cudaGetDeviceProperties");
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  program::GpuDescription gpu{
      .name = properties.name,
      .capability = fmt::format("{}.{}", properties.major, properties.minor),
      .num_units = properties.multiProcessorCount,
      .memory_bytes = static_cast<double>(total),
      .cache_bytes = static_cast<double>(properties.l2CacheSize),
      .process_bytes = static_cast<double>(total - free),
      .pci_bus = pci_bus_of(device_index)};
  const PciDevice slot = read_pci_device(gpu.pci_bus);
  gpu.pci_link = slot.link;
  gpu.numa_node = slot.numa_node;
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int other = 0; other < count; ++other) {
    if (other == device_index) continue;
    const auto attribute = [&](cudaDeviceP2PAttr which) {
      return peer_attribute(which, device_index, other);
    };
    gpu.peers.push_back({.pci_bus = pci_bus_of(other),
                         .access = attribute(cudaDevP2PAttrAccessSupported) != 0,
                         .native_atomics = attribute(cudaDevP2PAttrNativeAtomicSupported) != 0,
                         .performance_rank = attribute(cudaDevP2PAttrPerformanceRank)});
  }
  return gpu;
}

}  // namespace meshplan::runtime::cuda
