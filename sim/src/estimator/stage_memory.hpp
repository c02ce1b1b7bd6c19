#pragma once

#include "estimator/stage_costs.hpp"
#include "schedules/compiled_schedule.hpp"

namespace meshplan::sim {

/// Bytes of device memory that a rank of the stage holds: parameters, activations, buffers of
/// groups and what the runtime takes for itself.
/// @param expert_load  elements that count what experts were chosen for
double stage_memory_bytes(const program::Plan& plan, const StageCost& cost,
                          const StageActivations& activations, double expert_load,
                          const Cluster& cluster);

/// Bytes of its host's memory that a rank on a GPU of the stage holds.
/// @param activations  bytes of them that are kept there
double stage_host_bytes(const program::Plan& plan, const StageCost& cost, double activations,
                        const Cluster& cluster);

/// The part of stage_memory_bytes() in parameters, gradients and optimizer state.
double stage_state_bytes(const program::Plan& plan, const StageCost& cost, const Cluster& cluster);

}  // namespace meshplan::sim
