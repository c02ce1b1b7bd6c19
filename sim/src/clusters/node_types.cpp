#include "clusters/node_types.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "core/error.hpp"
#include "core/index.hpp"

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

int node_type(const Cluster& cluster, int rank) {
  const int node = rank / cluster.devices_per_node;
  int end = 0;
  for (int type = 0; type + 1 < num_node_types(cluster); ++type) {
    end += num_nodes_of(cluster, type);
    if (node < end) return type;
  }
  return num_node_types(cluster) - 1;
}

const Device& device_of(const Cluster& cluster, int type) {
  return type == 0 ? cluster.device : cluster.other_nodes[at(type - 1)].device;
}

std::vector<std::vector<int>> node_types(const Cluster& cluster, const program::Mesh& mesh) {
  const auto stages = static_cast<std::size_t>(mesh.config().pp);
  if (cluster.other_nodes.empty()) return std::vector<std::vector<int>>(stages, {0});
  std::vector<std::set<int>> types(stages);
  for (int rank = 0; rank < mesh.world_size(); ++rank)
    types[static_cast<std::size_t>(mesh.coordinates(rank).pp)].insert(node_type(cluster, rank));
  std::vector<std::vector<int>> sorted;
  for (const std::set<int>& of_stage : types) sorted.emplace_back(of_stage.begin(), of_stage.end());
  return sorted;
}

Cluster as_if_all(const Cluster& cluster, int type) {
  Cluster uniform = cluster;
  uniform.other_nodes.clear();
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
  for (int type = 0; type < num_node_types(cluster); ++type)
    uniform.push_back(as_if_all(cluster, type));
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
