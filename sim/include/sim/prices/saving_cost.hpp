// What keeping the state of a run in host memory takes (docs/checkpoints.md).
#pragma once

#include <cstdint>

#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Seconds for which a step is held up while a rank copies what it saves into its node's memory:
/// one copy from the device, and one more reading of it for the hashes. What is sent and written
/// after that is not counted.
/// @param bytes  program::saved_state_bytes
double saving_stall_seconds(std::int64_t bytes, const Cluster& cluster);

}  // namespace meshplan::sim
