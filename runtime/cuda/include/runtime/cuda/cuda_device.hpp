// One GPU as the runtime's device: a stream for each lane, events as marks, CUDA graphs.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/execute/device.hpp"

namespace meshplan::runtime {

/// How ranks on GPUs communicate.
enum class GpuCommunication {
  None,  // a rank by itself
  Nccl,  // queued on the lanes' streams
  Mpi,   // by the host, through pinned memory: any number of ranks can share a GPU
};

struct CudaDeviceOptions {
  int device_index = 0;
  GpuCommunication communication = GpuCommunication::Nccl;
  /// Several ranks on this GPU communicate by NCCL: the host empties all queues before and after
  /// each communication, and nothing is captured. A functional test, not a timing. prepare_to_share
  /// must have run first.
  bool shared = false;
  bool capture = true;
  bool allow_tf32 = false;
  bool tune_products = false;  // Device::product_tuning
  /// With NCCL: a step, or a single communication, that takes longer ends the job. A rank that
  /// hangs, or is gone without NCCL's noticing, leaves the kernels of its peers waiting for ever.
  Seconds hang_timeout{30.0};
  /// Told while the host waits for the device; may be null, must outlive the device.
  WaitObserver* observer = nullptr;
  /// One line of which library's kernel was chosen, or failed; null = silent.
  std::function<void(const std::string&)> log;
};

/// @throws ConfigError if there is no such device, kernels::CudaError if it cannot be used
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

/// Sets what CUDA reads from the environment; before the process's first call of it. Variables that
/// are set already are left alone.
/// @param shared  CudaDeviceOptions::shared
void prepare_cuda(bool shared);

/// Sets what NCCL (2.28) reads from the environment so that it accepts several ranks on one GPU:
/// each looks like a host of its own, and they talk through sockets of this machine. Before the
/// process's first call of NCCL. Variables that are set already are left alone.
void prepare_to_share(int rank);

}  // namespace meshplan::runtime
