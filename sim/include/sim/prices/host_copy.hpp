// What a copy between a rank's device and the memory of its host costs.
#pragma once

namespace meshplan::sim {

struct Cluster;

/// Seconds of one copy of so many bytes in one direction, while all ranks of the node copy as much.
/// A processor reads and writes its memory.
double host_copy_seconds(double bytes, const Cluster& cluster);

}  // namespace meshplan::sim
