// What copying the state of a run into host memory takes (docs/checkpoints.md). All ranks of a node
// copy at once. What is sent and written after that, beside training, is not counted.
#pragma once

namespace meshplan::sim {

struct Cluster;

/// Seconds for which a step is held up while each rank copies what a checkpoint on the disk holds
/// of it: one copy from the device. A processor reads and writes its memory for that, and the ranks
/// of a host share its bandwidth.
/// @param bytes  of a rank: program::SavedBytes::fullest_rank
double checkpoint_stall_seconds(double bytes, const Cluster& cluster);

/// The same while each rank copies its state into its node's memory: the copy, and one more reading
/// of it for the hashes.
double saving_stall_seconds(double bytes, const Cluster& cluster);

}  // namespace meshplan::sim
