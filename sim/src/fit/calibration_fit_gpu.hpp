// What a calibration says about GPUs beyond the operators' times.
#pragma once

#include <string>
#include <vector>

#include "program/calibration/calibration.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// @throws ConfigError if only some of the jobs ran on GPUs
bool measured_on_gpus(const std::vector<program::CalibrationSamples>& jobs);

/// Name, memory, launch costs and the shape of the efficiency curves. Peaks, memory bandwidth and
/// attention's part must have been fitted. @throws ConfigError if the GPUs are of several kinds
void describe_gpu(const std::vector<program::CalibrationSamples>& jobs, Cluster& cluster);

/// NCCL's, or the host's where it moved the data.
Communication gpu_communication(const std::vector<program::CalibrationSamples>& jobs);

/// "nvlink" if all GPUs reach one another by it, "pcie" if all have peer access, "host-memory"
/// otherwise.
std::string gpu_fabric_name(const std::vector<program::CalibrationSamples>& jobs);

}  // namespace meshplan::sim
