// What a group of ranks can move over each level of the fabric: shared by all algorithms.
#pragma once

#include "program/program.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Members of the group in one domain below `level`.
int inner_members(const GroupPlacement& placement, int level);

/// What leaves one domain below `level` per second and direction, over all links that members
/// reach.
double outgoing_bytes_per_s(const Cluster& cluster, const GroupPlacement& placement, int level);

/// What a rank sends to one other rank of a domain of this level per second.
double pair_bytes_per_s(const Cluster& cluster, int level);

/// Part of a level's rate that an all-to-all reaches.
double all_to_all_fraction(const Cluster& cluster, int level);

/// A ring crosses each boundary once, so its slowest level sets the pace for all bytes; rings over
/// several links of a node run side by side.
double bus_bytes_per_s(const Cluster& cluster, const GroupPlacement& placement);

/// Bytes that pass a rank's link in one direction: the bus bandwidth convention of nccl-tests
/// (doc/PERFORMANCE.md), so that bytes / seconds is bounded by the link for any n.
double bus_bytes(program::Collective collective, double m, int n);

/// Bytes of its own that a rank copies or adds to without any link: its part of the result.
double own_bytes(program::Collective collective, double m, int n);

/// What such bytes cost. NCCL's copies and sums take the same warps as what travels: nccl-tests of
/// 2, 4 and 8 ranks lie on bus_bytes + own_part * own_bytes, over one rate.
double own_part_seconds(const Cluster& cluster, const GroupPlacement& placement, double bytes);

}  // namespace meshplan::sim
