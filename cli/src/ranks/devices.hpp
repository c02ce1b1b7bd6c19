// What a rank computes on, and how ranks on GPUs communicate.
#pragma once

#include <memory>
#include <string>

#include "options/device_options.hpp"
#include "program/plan/plan.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/job/job.hpp"
#include "runtime/measure/reference_product.hpp"

namespace meshplan::cli {

enum class DeviceKind { Cpu, Cuda };

/// In a rank, before its device is made: what must be set before NCCL starts.
void prepare_process(const DeviceOptions& options, int rank);

/// GPUs that this process sees.
int num_gpus();

/// What the options ask for; auto is a GPU where there is one. Call it before MPI is started: for a
/// GPU the process may be replaced (cuda_program.hpp).
/// @throws ConfigError where a GPU is asked for and this program or machine has none, saying why
DeviceKind choose_device(const DeviceOptions& options);

/// What the options ask for; auto is what the plan's cluster is made of, and without a cluster a
/// GPU where there is one. Likewise before MPI.
/// @throws ConfigError where a GPU is asked for and this program or machine has none, saying why
DeviceKind choose_device(const DeviceOptions& options, const program::Plan& plan,
                         const std::string& plan_file);

/// What tells the speed of processor cores, on a backend of its own; null for ranks on GPUs.
std::unique_ptr<runtime::ReferenceProduct> make_reference_product(DeviceKind kind);

/// A rank's device and the backend behind it.
class RankDevice {
 public:
  /// Called by all ranks of the job at once. Ranks of a machine take its GPUs in turn.
  /// @param pipeline_stages  ranks that wait for one another while they compute: 1 = none
  /// @throws ConfigError if the ranks cannot communicate as asked on the GPUs that there are
  RankDevice(const DeviceOptions& options, DeviceKind kind, int pipeline_stages, runtime::Job& job);
  runtime::Device& device() { return *device_; }
  /// "NVIDIA H100 (GPU 0), NCCL": what a report should print.
  const std::string& name() const { return name_; }

 private:
  std::unique_ptr<kernels::Backend> backend_;  // of a CPU
  std::unique_ptr<runtime::Device> device_;
  std::string name_;
};

}  // namespace meshplan::cli
