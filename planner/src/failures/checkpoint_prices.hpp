// What one checkpoint costs, from the bytes that ranks save and hold.
#pragma once

#include <optional>
#include <string>

#include "core/checkpoint_interval.hpp"
#include "planner/failures/failure_model.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::planner {

/// Bytes of one checkpoint, and of what is read to start from it.
struct CheckpointBytes {
  double saved = 0;       // of the whole
  double saved_rank = 0;  // of the rank that saves most
  double held = 0;        // by all ranks together
  double held_rank = 0;   // by the rank that holds most
};

/// Bytes per second of the file system, all nodes together: as stated, else the cluster's, else
/// kStorageGbPerSecondOfNode for each node.
double storage_bytes_per_s(const sim::Cluster& cluster, std::optional<double> stated_gb_per_s);
/// Is that rate neither stated nor the cluster's?
bool is_storage_assumed(const sim::Cluster& cluster, std::optional<double> stated_gb_per_s);
/// "a file system of 8 GB/s, 1 GB/s a node (--storage-bandwidth)"
std::string assumed_storage(const sim::Cluster& cluster);

/// Prices a checkpoint in one place. `lag_s` and `load_s` of a partner's memory are infinite on a
/// single node.
CheckpointCosts checkpoint_costs(const CheckpointBytes& bytes, CheckpointPlace place,
                                 const sim::Cluster& cluster,
                                 std::optional<double> storage_gb_per_s);

/// What the interval between such checkpoints depends on.
inline CheckpointTimes times_of(const CheckpointCosts& costs, double step_time_s) {
  return {.stall_s = costs.stall_s, .complete_s = costs.lag_s, .step_s = step_time_s};
}

}  // namespace meshplan::planner
