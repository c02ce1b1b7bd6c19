#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/calibration/machine_speed.hpp"
#include "program/calibration/operator_sample.hpp"
#include "program/calibration/samples.hpp"

namespace meshplan::program {

/// How a GPU reaches another one of its machine, as its driver says.
struct GpuPeer {
  std::string pci_bus;          // of the other, "0000:3b:00.0"
  bool access = false;          // loads and stores through the fabric, not through host memory
  bool native_atomics = false;  // on the other's memory: over NVLink, not over PCIe
  int performance_rank = 0;     // of the link, relative to the machine's others
  bool operator==(const GpuPeer&) const = default;
};

/// The GPU of one rank.
struct GpuDescription {
  std::string name;
  std::string capability;  // "9.0": compute capability
  int num_units = 1;       // streaming multiprocessors
  double memory_bytes = 0;
  double cache_bytes = 0;    // L2
  double process_bytes = 0;  // device memory that the process holds without any buffer of a program
  std::string pci_bus;
  std::string pci_link;  // "32.0 GT/s PCIe x16", as the kernel reports it; empty = not known
  std::optional<int> numa_node;  // that its slot belongs to; absent: not known
  std::vector<GpuPeer> peers;
};

/// One size of one kind of copy.
struct CopySample {
  std::string kind;  // "host_to_device" and "device_to_host" of pinned memory, "device_to_device"
  std::int64_t bytes = 0;
  double seconds = 0;  // median, on the device
};

/// An all-reduce that a progress thread moves beside computation, on all ranks of the job.
struct ProgressSample {
  int ranks_on_host = 1;
  int cores_on_host = 1;
  std::int64_t bytes = 0;
  double compute_seconds = 0;        // median, the computation alone on all ranks
  double communication_seconds = 0;  // median, the all-reduce alone
  double together_seconds = 0;       // median, from its start until both are done
};

/// What issuing one small operation costs.
struct LaunchSample {
  double device_seconds = 0;  // from one to the next in a graph
  double queued_seconds = 0;  // the same launched one by one
  double host_seconds = 0;    // of the host, per call
};

/// Everything that one measuring job saw of a machine: raw, for sim::fit_cluster. Several jobs
/// (other rank counts) give several files, which are fitted together.
struct CalibrationSamples {
  int schema_version = 1;
  std::string hostname;
  std::string processor;
  int ranks = 1;  // of the job
  int cores = 1;  // of the busiest host, that its ranks may run on
  int num_machines = 1;
  double memory_bytes = 0;   // installed, of one host
  double process_bytes = 0;  // resident without any buffer of a program
  double memory_rate = 0;  // bytes/s of one rank copying alone, read plus written; 0 = not measured
  double host_memory_rate = 0;      // of all cores copying at once, sum
  std::vector<std::string> dtypes;  // that operators were measured in
  std::vector<OperatorSample> operators;
  std::vector<CommSample> communication;
  std::vector<LinkSample> links;
  std::vector<GpuDescription> gpus;  // of every rank; empty if ranks compute on processor cores
  std::vector<CopySample> copies;    // of rank 0's GPU
  LaunchSample launch;
  std::vector<ProgressSample> progress;
  bool device_driven = false;  // communication by NCCL rather than by the host
  Quietness quietness;
};

CalibrationSamples parse_samples(std::string_view text, const std::string& file);
std::string to_json(const CalibrationSamples& samples);

}  // namespace meshplan::program
