// A cluster for a tune that was given none: this machine, measured for one model.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "options/device_options.hpp"
#include "options/host_options.hpp"
#include "options/plan_options.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::cli {

struct FirstCalibration {
  const PlanOptions& plan;  // model, ranks, batch, sequence length, precision, pins
  DeviceOptions device;
  std::vector<std::string> device_flags;  // that say the same to ranks
  HostOptions hosts;
  std::vector<std::int64_t> micro_batches =
      {};  // to time operators at; empty: what the plan may use
};

/// Ranks to measure with, where the options name none: one a core, or one a GPU.
/// @throws ConfigError where a GPU is asked for and there is none
int ranks_here(const FirstCalibration& calibration);

/// Times operators and communication as `calibrate` does, but briefly: what tuning finds out by
/// running plans need not be known well before.
/// @returns the cluster, or the exit code of the job that failed
/// @throws ConfigError for a model or a flag that cannot be read
std::variant<sim::Cluster, int> calibrate_first(const FirstCalibration& calibration);

}  // namespace meshplan::cli
