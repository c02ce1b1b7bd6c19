// All types of a cluster's ranks at once.
#pragma once

#include <vector>

#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Number of the fabric's levels that lie inside a node.
std::size_t levels_inside(const Cluster& cluster);

/// as_if_all() of every type, by its number.
std::vector<Cluster> by_node_type(const Cluster& cluster);

}  // namespace meshplan::sim
