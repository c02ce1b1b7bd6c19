// What a stack and the switches of a run make of each other.
#pragma once

#include "sim/clusters/cluster.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/training_run.hpp"

namespace meshplan::sim {

/// The stack's habits with what the run's switches change of them.
/// @throws ConfigError for an unknown stack, with the nearest known one
ExecutionProfile profile_of(const TrainingRun& run);

/// What the run leaves open is as the stack has it.
void take_habits(const ExecutionProfile& profile, TrainingRun& run);

/// Of fused attention on these devices, at the run's heads.
FlashGeneration flash_of(const ExecutionProfile& profile, const Cluster& cluster,
                         const TrainingRun& run);

}  // namespace meshplan::sim
