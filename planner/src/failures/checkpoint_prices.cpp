#include "failures/checkpoint_prices.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <limits>

#include "core/index.hpp"
#include "core/units.hpp"
#include "program/memory/saved_share.hpp"
#include "sim/engine/memory.hpp"
#include "sim/prices/host_copy.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/prices/saving_cost.hpp"

namespace meshplan::planner {
namespace {

/// Copies of a rank's part in host memory on its way to the file system.
constexpr double kCopiesForStorage = 1;

/// Seconds in which every rank of a node sends so many bytes to another node at once.
double partner_seconds(double bytes, const sim::Cluster& cluster) {
  if (cluster.num_nodes == 1) return std::numeric_limits<double>::infinity();
  const sim::GroupPlacement placement = sim::place(cluster, {0, cluster.devices_per_node});
  const sim::Price alone =
      sim::price_transfer(static_cast<std::int64_t>(std::ceil(bytes)), placement, cluster);
  const double shared = bytes * cluster.fabric[at(*placement.level)].ranks_per_link /
                        sim::link_capacity_bytes_per_s(cluster, *placement.level);
  return std::max(alone.seconds, shared);
}

}  // namespace

bool is_storage_assumed(const sim::Cluster& cluster, std::optional<double> stated_gb_per_s) {
  return !stated_gb_per_s && cluster.storage_gb_per_s <= 0;
}

double storage_bytes_per_s(const sim::Cluster& cluster, std::optional<double> stated_gb_per_s) {
  if (is_storage_assumed(cluster, stated_gb_per_s))
    return kStorageGbPerSecondOfNode * cluster.num_nodes * kGigabyte;
  return stated_gb_per_s.value_or(cluster.storage_gb_per_s) * kGigabyte;
}

std::string assumed_storage(const sim::Cluster& cluster) {
  return fmt::format("a file system of {:g} GB/s, {:g} GB/s a node (--storage-bandwidth)",
                     storage_bytes_per_s(cluster, std::nullopt) / kGigabyte,
                     kStorageGbPerSecondOfNode);
}

CheckpointCosts checkpoint_costs(const CheckpointBytes& bytes, CheckpointPlace place,
                                 const sim::Cluster& cluster,
                                 std::optional<double> storage_gb_per_s) {
  const bool partner = place == CheckpointPlace::Partner;
  const double storage = storage_bytes_per_s(cluster, storage_gb_per_s);
  CheckpointCosts costs{.bytes = bytes.saved, .rank_bytes = bytes.saved_rank};
  costs.stall_s = partner ? sim::saving_stall_seconds(bytes.saved_rank, cluster)
                          : sim::checkpoint_stall_seconds(bytes.saved_rank, cluster);
  costs.lag_s = partner ? partner_seconds(bytes.saved_rank, cluster) : bytes.saved / storage;
  // From a partner every rank takes its part from its host or its partner's, and the rest of what
  // it holds from other ranks.
  costs.load_s = partner ? sim::host_copy_seconds(bytes.saved_rank, cluster) +
                               partner_seconds(bytes.held_rank, cluster)
                         : bytes.held / storage + sim::host_copy_seconds(bytes.held_rank, cluster);
  costs.host_node_bytes = (partner ? program::kept_states(cluster.num_nodes) : kCopiesForStorage) *
                          bytes.saved_rank * cluster.devices_per_node;
  costs.host_node_limit = sim::host_capacity_bytes(cluster) * cluster.devices_per_node;
  return costs;
}

}  // namespace meshplan::planner
