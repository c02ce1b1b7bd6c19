#include "clusters/node_types.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <set>

#include "core/error.hpp"
#include "core/index.hpp"
#include "sim/clusters/what_if.hpp"

namespace meshplan::sim {
namespace {

void require_alike(const Cluster& first, const Cluster& other) {
  const auto fail = [&](std::string_view what, const auto& of_first, const auto& of_other) {
    throw ConfigError(fmt::format("clusters '{}' and '{}' cannot be joined: {} differ, {} and {}",
                                  first.name, other.name, what, of_first, of_other));
  };
  if (first.device.kind != DeviceKind::Gpu || other.device.kind != DeviceKind::Gpu)
    throw ConfigError(fmt::format("clusters '{}' and '{}' cannot be joined: both must hold GPUs",
                                  first.name, other.name));
  if (first.devices_per_node != other.devices_per_node)
    fail("devices of a node", first.devices_per_node, other.devices_per_node);
  if (first.fabric.size() != other.fabric.size())
    fail("levels of the fabric", first.fabric.size(), other.fabric.size());
  for (std::size_t l = 0; l < first.fabric.size(); ++l)
    if (first.fabric[l].ranks_per_group != other.fabric[l].ranks_per_group)
      fail(fmt::format("ranks in a group of level '{}'", first.fabric[l].name),
           first.fabric[l].ranks_per_group, other.fabric[l].ranks_per_group);
}

/// A message between nodes of two types is as fast as the slower side takes or sends it.
void slow_down(FabricLevel& level, const FabricLevel& other) {
  const double own_share = level.link_gb_per_s / level.ranks_per_link / level.oversubscription;
  const double other_share = other.link_gb_per_s / other.ranks_per_link / other.oversubscription;
  const double latency = std::max(level.latency_us, other.latency_us);
  if (other_share < own_share) level = other;
  level.latency_us = latency;
}

int type_of_node(const Cluster& cluster, int node) {
  int end = 0;
  for (int type = 0; type + 1 < num_node_types(cluster); ++type) {
    end += num_nodes_of(cluster, type);
    if (node < end) return type;
  }
  return num_node_types(cluster) - 1;
}

/// What all ranks of a slow rank's type have in common.
struct SlowType {
  int node_type = 0;
  double times = 1;
  auto operator<=>(const SlowType&) const = default;
};

SlowType slow_type(const Cluster& cluster, const SlowRank& slow) {
  return {type_of_node(cluster, slow.rank / cluster.devices_per_node), slow.times};
}

/// In the order of their numbers.
std::vector<SlowType> slow_types(const Cluster& cluster) {
  std::set<SlowType> types;
  for (const SlowRank& slow : cluster.slow_ranks)
    if (slow.times > 1) types.insert(slow_type(cluster, slow));
  return {types.begin(), types.end()};
}

/// All that the devices compute takes so many times as long; what moves over links does not. The
/// share of a host's memory bandwidth that a CPU rank asks for falls with its speed.
Cluster slowed(const Cluster& cluster, double times) {
  Cluster slow = scaled(scaled(cluster, "flops", 1 / times), "memory_bandwidth", 1 / times);
  slow.device.launch_us *= times;
  if (slow.device.clock_ghz) *slow.device.clock_ghz /= times;
  return slow;
}

/// The first rank of a type's nodes where types are laid out in this order.
int first_rank(const Cluster& cluster, const std::vector<int>& types, int type) {
  int nodes = 0;
  for (const int before : types) {
    if (before == type) break;
    nodes += num_nodes_of(cluster, before);
  }
  return nodes * cluster.devices_per_node;
}

std::vector<SlowRank> slow_ranks_in_order(const Cluster& cluster, const std::vector<int>& types) {
  std::vector<int> as_given(types.size());
  std::iota(as_given.begin(), as_given.end(), 0);
  std::vector<SlowRank> moved = cluster.slow_ranks;
  for (SlowRank& slow : moved) {
    const int type = slow_type(cluster, slow).node_type;
    slow.rank += first_rank(cluster, types, type) - first_rank(cluster, as_given, type);
  }
  std::ranges::sort(moved, {}, &SlowRank::rank);
  return moved;
}

}  // namespace

std::size_t levels_inside(const Cluster& cluster) {
  const auto outside = std::ranges::find_if(cluster.fabric, [&](const FabricLevel& level) {
    return level.ranks_per_group == 0 || level.ranks_per_group > cluster.devices_per_node;
  });
  return static_cast<std::size_t>(outside - cluster.fabric.begin());
}

int num_nodes_of(const Cluster& cluster, int type) {
  if (type > 0) return cluster.other_nodes[at(type - 1)].num_nodes;
  int nodes = cluster.num_nodes;
  for (const OtherNodes& other : cluster.other_nodes) nodes -= other.num_nodes;
  return nodes;
}

int num_types(const Cluster& cluster) {
  return num_node_types(cluster) + static_cast<int>(slow_types(cluster).size());
}

int node_type(const Cluster& cluster, int rank) {
  const auto slow = std::ranges::lower_bound(cluster.slow_ranks, rank, {}, &SlowRank::rank);
  if (slow == cluster.slow_ranks.end() || slow->rank != rank || slow->times <= 1)
    return type_of_node(cluster, rank / cluster.devices_per_node);
  const std::vector<SlowType> types = slow_types(cluster);
  const auto own = std::ranges::lower_bound(types, slow_type(cluster, *slow));
  return num_node_types(cluster) + static_cast<int>(own - types.begin());
}

const Device& device_of(const Cluster& cluster, int type) {
  if (type >= num_node_types(cluster))
    return device_of(cluster, slow_types(cluster)[at(type - num_node_types(cluster))].node_type);
  return type == 0 ? cluster.device : cluster.other_nodes[at(type - 1)].device;
}

std::vector<std::vector<int>> node_types(const Cluster& cluster, const program::Mesh& mesh) {
  const auto stages = static_cast<std::size_t>(mesh.config().pp);
  if (num_types(cluster) == 1) return std::vector<std::vector<int>>(stages, {0});
  std::vector<std::set<int>> types(stages);
  for (int rank = 0; rank < mesh.world_size(); ++rank)
    types[static_cast<std::size_t>(mesh.coordinates(rank).pp)].insert(node_type(cluster, rank));
  std::vector<std::vector<int>> sorted;
  for (const std::set<int>& of_stage : types) sorted.emplace_back(of_stage.begin(), of_stage.end());
  return sorted;
}

Cluster as_if_all(const Cluster& cluster, int type) {
  if (type >= num_node_types(cluster)) {
    const SlowType slow = slow_types(cluster)[at(type - num_node_types(cluster))];
    return slowed(as_if_all(cluster, slow.node_type), slow.times);
  }
  Cluster uniform = cluster;
  uniform.other_nodes.clear();
  uniform.slow_ranks.clear();
  if (type == 0) return uniform;
  uniform.device = device_of(cluster, type);
  std::ranges::copy(cluster.other_nodes[at(type - 1)].inside, uniform.fabric.begin());
  return uniform;
}

Cluster in_node_order(const Cluster& cluster, const std::vector<int>& types) {
  require_invariant(types.size() == at(num_node_types(cluster)), "an order has every node type");
  const auto part_of = [&](int type) {
    const Cluster uniform = as_if_all(cluster, type);
    const std::size_t inside = levels_inside(uniform);
    return OtherNodes{.num_nodes = num_nodes_of(cluster, type),
                      .device = uniform.device,
                      .inside = {uniform.fabric.begin(),
                                 uniform.fabric.begin() + static_cast<std::ptrdiff_t>(inside)}};
  };
  Cluster ordered = as_if_all(cluster, types.front());
  for (std::size_t i = 1; i < types.size(); ++i) ordered.other_nodes.push_back(part_of(types[i]));
  ordered.slow_ranks = slow_ranks_in_order(cluster, types);
  // As joined() names them: "dgx-h100:4+dgx-a100:4".
  std::vector<std::string> names(1);
  for (const char c : cluster.name)
    if (c == '+')
      names.emplace_back();
    else
      names.back() += c;
  if (names.size() != types.size()) return ordered;
  ordered.name.clear();
  for (const int type : types) ordered.name += (ordered.name.empty() ? "" : "+") + names[at(type)];
  return ordered;
}

std::vector<Cluster> by_node_type(const Cluster& cluster) {
  std::vector<Cluster> uniform;
  for (int type = 0; type < num_types(cluster); ++type) uniform.push_back(as_if_all(cluster, type));
  return uniform;
}

Cluster joined(const std::vector<Cluster>& parts) {
  require_invariant(!parts.empty(), "a cluster has at least one part");
  const auto name = [](const Cluster& part) {
    return fmt::format("{}:{}", part.name, part.num_nodes);
  };
  Cluster whole = parts.front();
  whole.name = name(whole);
  whole.about.reset();
  whole.operators.clear();
  whole.collectives.clear();
  const std::size_t inside = levels_inside(whole);
  for (std::size_t p = 1; p < parts.size(); ++p) {
    const Cluster& part = parts[p];
    require_alike(parts.front(), part);
    if (!part.other_nodes.empty() || !parts.front().other_nodes.empty())
      throw ConfigError(
          fmt::format("cluster '{}' has nodes of several types already: join its "
                      "parts instead",
                      part.other_nodes.empty() ? parts.front().name : part.name));
    whole.name = fmt::format("{}+{}", whole.name, name(part));
    for (const SlowRank& slow : part.slow_ranks)
      whole.slow_ranks.push_back({whole.num_ranks() + slow.rank, slow.times});
    whole.num_nodes += part.num_nodes;
    whole.other_nodes.push_back(
        {.num_nodes = part.num_nodes,
         .device = part.device,
         .inside = {part.fabric.begin(),
                    part.fabric.begin() + static_cast<std::ptrdiff_t>(inside)}});
    for (std::size_t l = inside; l < whole.fabric.size(); ++l)
      slow_down(whole.fabric[l], part.fabric[l]);
    std::erase_if(whole.communication.offers, [&](FabricOffer offer) {
      return std::ranges::find(part.communication.offers, offer) == part.communication.offers.end();
    });
  }
  return whole;
}

}  // namespace meshplan::sim
