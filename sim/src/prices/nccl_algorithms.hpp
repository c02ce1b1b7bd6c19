// NCCL's algorithms beyond rings and trees: sums inside switches (NVLS, CollNet) and the parallel
// aggregated tree (PAT), with the latencies and efficiencies that NCCL itself chooses by.
#pragma once

#include "program/program.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {

/// Is it one of them?
bool is_nccl_algorithm(Algorithm algorithm);

/// Does the cluster offer it, and does it run this collective in a group that lies so?
bool offers_nccl_algorithm(Algorithm algorithm, program::Collective collective,
                           const GroupPlacement& placement, const Cluster& cluster);

/// @param m  bytes that one rank passes in. Domain: offers_nccl_algorithm
double nccl_algorithm_seconds(Algorithm algorithm, program::Collective collective, double m,
                              const GroupPlacement& placement, const Cluster& cluster);

}  // namespace meshplan::sim
