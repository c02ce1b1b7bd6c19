#include "prices/collective_rates.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;

/// Ranks inside one domain of the level below `level`; 1 below the innermost.
int inner_span(const Cluster& cluster, int level) {
  return level == 0 ? 1 : cluster.fabric[static_cast<std::size_t>(level - 1)].ranks_per_group;
}

/// Part of a rank's link over which it reaches the other members of its group in a domain of this
/// level: all of it through a switch; where each pair of ranks has a link, those to the members.
double reachable_part(const FabricLevel& fabric, const GroupPlacement& placement, int level) {
  const auto l = static_cast<std::size_t>(level);
  if (!fabric.full_mesh || l >= placement.members_per_domain.size()) return 1;
  const int members = placement.members_per_domain[l];
  if (members <= 1) return 1;  // nothing travels here
  return std::min(1.0, (members - 1.0) / (fabric.ranks_per_group - 1.0));
}

}  // namespace

double pair_bytes_per_s(const Cluster& cluster, int level) {
  const FabricLevel& fabric = cluster.fabric[static_cast<std::size_t>(level)];
  return link_capacity_bytes_per_s(cluster, level) /
         (fabric.full_mesh ? fabric.ranks_per_group - 1.0 : 1.0);
}

int inner_members(const GroupPlacement& placement, int level) {
  return level == 0 ? 1 : placement.members_per_domain[static_cast<std::size_t>(level - 1)];
}

double outgoing_bytes_per_s(const Cluster& cluster, const GroupPlacement& placement, int level) {
  const FabricLevel& fabric = cluster.fabric[static_cast<std::size_t>(level)];
  const int span = inner_span(cluster, level);
  const int links = std::max(1, span / fabric.ranks_per_link);
  // The other ranks of the domain are in groups of the same kind, which do the same meanwhile.
  const int ranks = std::max(span, inner_members(placement, level));
  return reachable_part(fabric, placement, level) * link_capacity_bytes_per_s(cluster, level) *
         links * inner_members(placement, level) / ranks;
}

double own_part_seconds(const Cluster& cluster, const GroupPlacement& placement, double bytes) {
  const double part = cluster.communication.own_part;
  return part > 0 ? part * bytes / outgoing_bytes_per_s(cluster, placement, 0) : 0;
}

double all_to_all_fraction(const Cluster& cluster, int level) {
  return level == 0 ? cluster.communication.all_to_all_inner : cluster.communication.all_to_all;
}

double bus_bytes_per_s(const Cluster& cluster, const GroupPlacement& placement) {
  double slowest = std::numeric_limits<double>::infinity();
  for (int level = 0; level <= *placement.level; ++level)
    slowest = std::min(slowest, outgoing_bytes_per_s(cluster, placement, level));
  return slowest;
}

double own_bytes(Collective collective, double m, int n) {
  switch (collective) {
    case Collective::AllReduce:
    case Collective::ReduceScatter:
    case Collective::AllToAll:
    case Collective::AllToAllV:
      return m / n;
    case Collective::AllGather:
      return m;
    case Collective::Broadcast:
    case Collective::Shift:
      return 0;
  }
  throw InvariantError("unknown collective");
}

double bus_bytes(Collective collective, double m, int n) {
  const double others = n - 1;
  switch (collective) {
    case Collective::AllReduce:
      return 2 * others / n * m;
    case Collective::ReduceScatter:
      return others / n * m;
    case Collective::AllGather:
      return others * m;
    case Collective::AllToAll:
    case Collective::AllToAllV:
      return others / n * m;
    case Collective::Broadcast:
    case Collective::Shift:
      return m;
  }
  throw InvariantError("unknown collective");
}

}  // namespace meshplan::sim
