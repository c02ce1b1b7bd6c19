#include "fit/calibration_fit_gpu.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/units.hpp"
#include "sim/fit/calibration_fit.hpp"

namespace meshplan::sim {
namespace {

using program::CalibrationSamples;
using program::GpuDescription;
using Jobs = std::vector<CalibrationSamples>;

constexpr double kKib = 1024;

template <class Visit>
void each_gpu(const Jobs& jobs, Visit visit) {
  for (const CalibrationSamples& job : jobs)
    for (const GpuDescription& gpu : job.gpus) visit(gpu);
}

/// CUDA C++ Programming Guide, "Compute Capabilities".
Architecture architecture_of(const std::string& capability) {
  if (capability == "8.9") return Architecture::Ada;
  if (capability.starts_with("8.")) return Architecture::Ampere;
  if (capability.starts_with("9.")) return Architecture::Hopper;
  if (capability.starts_with("10.") || capability.starts_with("11."))
    return Architecture::Blackwell;
  if (capability.starts_with("12.")) return Architecture::BlackwellRtx;
  return Architecture::Other;
}

/// Bytes at which a stream reaches half of its rate: a copy moves each byte twice, and takes
/// launch + (traffic + half) / rate.
double fitted_half_stream_kib(const Jobs& jobs, const Device& device) {
  std::vector<TimedMessage> copies;
  const double launch = device.launch_us / kMicroseconds;
  for (const CalibrationSamples& job : jobs)
    for (const program::CopySample& copy : job.copies)
      if (copy.kind == "device_to_device" && copy.seconds > launch)
        copies.push_back({2.0 * static_cast<double>(copy.bytes), copy.seconds - launch});
  if (copies.size() < 2) return Efficiency{}.half_stream_kib;
  return fit_alpha_beta(copies).latency_s * device.memory_gb_per_s * kGigabyte / kKib;
}

}  // namespace

bool measured_on_gpus(const Jobs& jobs) {
  const auto with_gpus = static_cast<std::size_t>(
      std::ranges::count_if(jobs, [](const CalibrationSamples& job) { return !job.gpus.empty(); }));
  if (with_gpus != 0 && with_gpus != jobs.size())
    throw ConfigError(fmt::format(
        "calibration: {} of {} jobs ran on GPUs, the others on processor cores; fit them apart",
        with_gpus, jobs.size()));
  return with_gpus != 0;
}

void describe_gpu(const Jobs& jobs, Cluster& cluster) {
  constexpr int kTile = 128;          // cuBLASLt's common tile of threads
  constexpr int kTileOfHopper = 256;  // two warp groups side by side, from sm_90 on
  Device& device = cluster.device;
  const GpuDescription& first = jobs.front().gpus.front();
  device.kind = DeviceKind::Gpu;
  device.name = first.name;
  device.architecture = architecture_of(first.capability);
  device.num_units = first.num_units;
  device.memory_gib = first.memory_bytes / kGib;
  each_gpu(jobs, [&](const GpuDescription& gpu) {
    if (gpu.name != first.name)
      throw ConfigError(fmt::format(
          "calibration: ranks ran on GPUs of several kinds, '{}' and '{}'; a cluster file "
          "describes one: make the others invisible with CUDA_VISIBLE_DEVICES",
          first.name, gpu.name));
    device.memory_gib = std::min(device.memory_gib, gpu.memory_bytes / kGib);
    device.runtime_base_mib = std::max(device.runtime_base_mib, gpu.process_bytes / kMib);
  });
  for (const CalibrationSamples& job : jobs) {
    device.launch_us = std::max(device.launch_us, job.launch.device_seconds * kMicroseconds);
    device.host_issue_us = std::max(device.host_issue_us, job.launch.host_seconds * kMicroseconds);
  }
  Efficiency& efficiency = device.efficiency;
  efficiency.gemm = 1.0;  // peaks and bandwidth are what was reached
  efficiency.memory = 1.0;
  efficiency.tile_m = kTile;
  const bool wide =
      device.architecture == Architecture::Hopper || device.architecture == Architecture::Blackwell;
  efficiency.tile_n = wide ? kTileOfHopper : kTile;
  efficiency.half_stream_kib = fitted_half_stream_kib(jobs, device);
}

Communication gpu_communication(const Jobs& jobs) {
  const bool device_driven =
      std::ranges::all_of(jobs, [](const CalibrationSamples& job) { return job.device_driven; });
  if (!device_driven) return {.needs_host = true, .protocols = {Protocol{.name = "mpi"}}};
  constexpr double kShareOfUnits = 0.12;  // not measured: as the presets have it for NCCL
  return {.device_share = kShareOfUnits, .protocols = {Protocol{.name = "nccl"}}};
}

std::string gpu_fabric_name(const Jobs& jobs) {
  bool all_access = true;
  bool all_nvlink = true;
  each_gpu(jobs, [&](const GpuDescription& gpu) {
    for (const program::GpuPeer& peer : gpu.peers) {
      all_access = all_access && peer.access;
      all_nvlink = all_nvlink && peer.access && peer.native_atomics;
    }
  });
  if (all_nvlink) return "nvlink";
  return all_access ? "pcie" : "host-memory";
}

}  // namespace meshplan::sim
