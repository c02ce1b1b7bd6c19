// What a stack and the settings of a run make of each other.
#pragma once

#include "sim/clusters/cluster.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/training_run.hpp"

namespace meshplan::sim {

/// The stack's habits with what the run's settings change of them.
/// @throws ConfigError for an unknown stack, with the nearest known one
ExecutionProfile profile_of(const TrainingRun& run);

/// The loss as a setting asks for it.
void take_loss_kernel(program::LossKernel loss, ExecutionProfile& profile);

/// What the run leaves open is as the stack has it.
void take_habits(const ExecutionProfile& profile, TrainingRun& run);

/// Of fused attention on these devices, at the run's heads.
FlashGeneration flash_of(const ExecutionProfile& profile, const Cluster& cluster,
                         const TrainingRun& run);

/// Do tokens go to their experts by a fused dispatcher, one copy for each rank?
bool fused_dispatch(const TrainingRun& run);

}  // namespace meshplan::sim
