// What a run leaves open that decides whether it fits: what it recomputes, and what its stack keeps
// whole to save communication. One choice serves time and memory.
#pragma once

#include <functional>
#include <vector>

#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/run_prediction.hpp"
#include "sim/stacks/training_run.hpp"

namespace meshplan::sim {

/// Every way in which the stack may run `run`, itself first.
///
/// A run that does not say what it recomputes may recompute any of the modules that its stack knows
/// by name, all but every second product, some layers or all (SoftwareFeatures). What a stack keeps
/// whole to save communication, its users can have sharded instead (NeMo-Automodel,
/// defer_fsdp_grad_sync, reshard_after_forward).
std::vector<TrainingRun> ways_to_run(const TrainingRun& run, const ExecutionProfile& profile);

/// What a way takes.
struct WayCosts {
  std::function<RunMemory(const TrainingRun&)> memory;  // of the fullest stage
  std::function<double(const TrainingRun&)> seconds;    // of a step
};

/// The first way if it fits, else the fastest one that does, else the one that needs least memory.
TrainingRun cheapest_that_fits(const std::vector<TrainingRun>& ways, const WayCosts& costs);

}  // namespace meshplan::sim
