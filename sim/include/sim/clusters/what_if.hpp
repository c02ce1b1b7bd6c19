// The same cluster with other figures: half the network, twice the FLOP/s, a device of 141 GiB.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// What of a cluster can be scaled by a factor:
///
///     flops                       peaks of all dtypes, and exponentials of attention
///     memory_bandwidth            of the devices, and what the ranks of a CPU host share
///     memory                      of the devices
///     network                     bandwidth of the links between nodes
///     latency                     of all links
///     LEVEL, LEVEL.bandwidth      bandwidth of the links of one level of the fabric
///     LEVEL.latency
///
/// What was measured scales with what it depends on: products and attention with flops, other
/// operators with memory_bandwidth, of a collective the time of its smallest message with latency
/// and the rest with bandwidth.
/// @returns the names that this cluster has
std::vector<std::string> figure_names(const Cluster& cluster);

/// Factors of single figures lie between these.
constexpr double kSmallestScale = 1e-3;
constexpr double kLargestScale = 1e3;

/// A latency times 2 is twice as long; anything else times 2 is twice as much.
/// @throws ConfigError for a figure that the cluster does not have, with the nearest one
Cluster scaled(const Cluster& cluster, std::string_view figure, double factor);

/// Figures whose effect on a step is shown: flops, memory bandwidth, then bandwidth and latency of
/// each level, innermost first. None stands for another of them.
std::vector<std::string> separate_figures(const Cluster& cluster);

struct ChangedCluster {
  Cluster cluster;                   // its name tells what was changed: "dgx-h100 (network=0.5)"
  std::vector<std::string> changes;  // "fabric[1].link_gb_per_s: 48 -> 24"
};

/// @param settings  "network=0.5": a figure and its factor; or "device.memory_gib=141": the keys to
/// a value of the cluster's file with dots between them, entries of lists by number
/// ("fabric[1].latency_us=5"), and the value as JSON, a string also without quotes. In order.
/// @throws ConfigError for anything else, with the nearest name, and for a cluster that is none
/// then
ChangedCluster change_cluster(const Cluster& cluster, const std::vector<std::string>& settings);

/// Does a setting's key name a figure or a value of the cluster? "cluster." may stand before it.
bool is_of_cluster(const Cluster& cluster, std::string_view key);

}  // namespace meshplan::sim
