// Time of collectives: the alpha-beta model of Thakur, Rabenseifner and Gropp 2005 ("Optimization
// of collective communication operations in MPICH", section 3), with alpha and beta by fabric
// level.
//
// n ranks, m bytes that one rank passes in, B bus bandwidth, a latency of a hop.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/units.hpp"
#include "prices/collective_rates.hpp"
#include "prices/measured_collectives.hpp"
#include "prices/measured_shapes.hpp"
#include "prices/nccl_algorithms.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;

// A double binary tree keeps each rank's two directions busy, but not perfectly (NCCL tuning.cc).
constexpr double kTreeBandwidth = 0.92;

double log2_ceil(int n) {
  return std::ceil(std::log2(static_cast<double>(std::max(1, n))));
}

double hop_seconds(const Cluster& cluster, int level, const Protocol& protocol) {
  return cluster.fabric[static_cast<std::size_t>(level)].latency_us * protocol.latency_factor /
         kMicroseconds;
}

/// Latency of passing once around the ring: n - 1 hops, as few of them as possible on outer levels.
double ring_latency(const Cluster& cluster, const GroupPlacement& placement,
                    const Protocol& protocol) {
  double seconds = 0;
  int inner = placement.size;
  for (int level = 0; level <= *placement.level; ++level) {
    const int domains = placement.domains[static_cast<std::size_t>(level)];
    seconds += (inner - domains) * hop_seconds(cluster, level, protocol);
    inner = domains;
  }
  return seconds;
}

/// Messages of an exchange between all ranks do not wait for each other: inside a domain one after
/// the other is issued, across a network all are posted at once (NCCL's grouped sends and
/// receives).
double exchange_latency(const Cluster& cluster, const GroupPlacement& placement,
                        const Protocol& protocol) {
  const int inside = *placement.level == 0 ? placement.size : inner_members(placement, 1);
  double seconds = (inside - 1) * hop_seconds(cluster, 0, protocol);
  for (int level = 1; level <= *placement.level; ++level)
    seconds += hop_seconds(cluster, level, protocol);
  return seconds;
}

/// Latency from the leaves to the root of a tree: a chain inside a node, binary over nodes
/// (NCCL 2.4).
double tree_latency(const Cluster& cluster, const GroupPlacement& placement,
                    const Protocol& protocol) {
  double seconds = 0;
  int inner = placement.size;
  for (int level = 0; level <= *placement.level; ++level) {
    const int domains = placement.domains[static_cast<std::size_t>(level)];
    const int fan = (inner + domains - 1) / domains;
    seconds += (level == 0 ? fan - 1 : log2_ceil(fan)) * hop_seconds(cluster, level, protocol);
    inner = domains;
  }
  return seconds;
}

double doubling_latency(const Cluster& cluster, const GroupPlacement& placement,
                        const Protocol& protocol) {
  double seconds = 0;
  int inner = placement.size;
  for (int level = 0; level <= *placement.level; ++level) {
    const int domains = placement.domains[static_cast<std::size_t>(level)];
    seconds += log2_ceil((inner + domains - 1) / domains) * hop_seconds(cluster, level, protocol);
    inner = domains;
  }
  return seconds;
}

/// All-to-all: the part of a rank's bytes that leaves each level's domain passes its share of the
/// links there; the slowest level counts.
double all_to_all_seconds(double m, const GroupPlacement& placement, const Cluster& cluster,
                          double bandwidth_fraction) {
  double slowest = 0;
  for (int level = 0; level <= *placement.level; ++level) {
    const int inside = inner_members(placement, level);
    const double leaving = m * (placement.size - inside) / placement.size;
    const double share = outgoing_bytes_per_s(cluster, placement, level) / inside;
    const double reached = all_to_all_fraction(cluster, level) * bandwidth_fraction;
    slowest = std::max(slowest, leaving / (share * reached));
  }
  return slowest;
}

/// Can this algorithm run this collective in this group?
bool offers(Algorithm algorithm, Collective collective, const GroupPlacement& placement,
            const Cluster& cluster) {
  if (is_nccl_algorithm(algorithm))
    return offers_nccl_algorithm(algorithm, collective, placement, cluster);
  if (algorithm == Algorithm::Tree)
    return collective == Collective::AllReduce || collective == Collective::Broadcast;
  if (algorithm == Algorithm::RecursiveDoubling)
    return collective != Collective::AllToAll && collective != Collective::Broadcast;
  return true;
}

double fastest_formula(Collective collective, double bytes, const GroupPlacement& placement,
                       const Cluster& cluster) {
  double best = std::numeric_limits<double>::infinity();
  for (const Algorithm algorithm :
       {Algorithm::Ring, Algorithm::Tree, Algorithm::RecursiveDoubling}) {
    // NCCL has no recursive doubling; MPI libraries have.
    if (algorithm == Algorithm::RecursiveDoubling && !cluster.communication.needs_host) continue;
    if (!offers(algorithm, collective, placement, cluster)) continue;
    for (const Protocol& protocol : cluster.communication.protocols)
      best = std::min(
          best, collective_seconds(collective, algorithm, bytes, placement, cluster, protocol));
  }
  for (const Algorithm algorithm :
       {Algorithm::Nvls, Algorithm::NvlsTree, Algorithm::CollNet, Algorithm::Pat})
    if (offers(algorithm, collective, placement, cluster))
      best =
          std::min(best, nccl_algorithm_seconds(algorithm, collective, bytes, placement, cluster));
  return best;
}

/// Adds what a transfer of `bytes` per rank takes of the links and of a CPU host's memory.
Price with_demands(double seconds, double bytes, PriceSource source,
                   const GroupPlacement& placement, const Cluster& cluster) {
  Price price{.seconds = seconds, .source = source};
  if (seconds <= 0) return price;
  price.level = placement.level;
  price.link_bytes_per_s = std::min(bytes / seconds / inner_members(placement, *placement.level),
                                    link_capacity_bytes_per_s(cluster, *placement.level));
  if (cluster.device.kind == DeviceKind::Cpu && cluster.host_memory_gb_per_s > 0) {
    // A copy reads and writes. The duration already holds what the group's own copies cost each
    // other.
    const double fair = cluster.host_memory_gb_per_s * kGigabyte / placement.on_first_host;
    price.memory_bytes_per_s = std::min(2 * bytes / seconds, fair);
  }
  return price;
}

}  // namespace

double link_capacity_bytes_per_s(const Cluster& cluster, int level) {
  const FabricLevel& fabric = cluster.fabric[static_cast<std::size_t>(level)];
  return fabric.reached * fabric.link_gb_per_s * kGigabyte / fabric.oversubscription;
}

double collective_seconds(Collective collective, Algorithm algorithm, double message_bytes,
                          const GroupPlacement& placement, const Cluster& cluster,
                          const Protocol& protocol) {
  if (placement.size == 1) return 0;
  require_invariant(offers(algorithm, collective, placement, cluster),
                    "the algorithm runs this collective");
  if (is_nccl_algorithm(algorithm))
    return nccl_algorithm_seconds(algorithm, collective, message_bytes, placement, cluster);
  const int n = placement.size;
  const double base = protocol.base_us / kMicroseconds;
  const double bandwidth = bus_bytes_per_s(cluster, placement) * protocol.bandwidth_fraction;
  const double own = own_part_seconds(cluster, placement, own_bytes(collective, message_bytes, n)) /
                     protocol.bandwidth_fraction;
  const double transfer = bus_bytes(collective, message_bytes, n) / bandwidth + own;
  const double passes = collective == Collective::AllReduce ? 2 : 1;
  if (collective == Collective::AllToAll)
    return base + exchange_latency(cluster, placement, protocol) +
           all_to_all_seconds(message_bytes, placement, cluster, protocol.bandwidth_fraction) + own;
  switch (algorithm) {
    case Algorithm::Ring:
      return base + passes * ring_latency(cluster, placement, protocol) + transfer;
    case Algorithm::Tree:
      // Reduce to the root, then broadcast: every link carries m each way, pipelined.
      return base + passes * tree_latency(cluster, placement, protocol) +
             passes * message_bytes / (bandwidth * kTreeBandwidth) + own;
    case Algorithm::RecursiveDoubling: {
      const double latency = doubling_latency(cluster, placement, protocol);
      if (collective == Collective::AllReduce)  // the whole buffer in each of log2 n exchanges
        return base + latency + log2_ceil(n) * message_bytes / bandwidth;
      return base + latency +
             transfer;  // doubling (all-gather) or halving (reduce-scatter) messages
    }
    default:
      break;
  }
  throw InvariantError("unknown algorithm");
}

Price price_collective(Collective collective, std::int64_t message_bytes,
                       const GroupPlacement& placement, const Cluster& cluster) {
  if (placement.size == 1) return {};
  // Every rank sends one message, and all of them travel at once over links of their own.
  if (collective == Collective::Shift) return price_transfer(message_bytes, placement, cluster);
  // Uneven parts cost what their mean does, as long as the largest is not far above it.
  if (collective == Collective::AllToAllV) collective = Collective::AllToAll;
  const auto bytes = static_cast<double>(message_bytes);
  const auto formula = [&](int group_size, double at_bytes) {
    if (group_size == placement.size)
      return fastest_formula(collective, at_bytes, placement, cluster);
    GroupPlacement other = placement;  // only asked for groups inside the innermost level
    other.size = group_size;
    other.members_per_domain = {group_size};
    return fastest_formula(collective, at_bytes, other, cluster);
  };
  // CPU ranks that outnumber their host's cores take turns at copying.
  const double turns =
      cluster.device.kind == DeviceKind::Cpu
          ? std::max(1.0, static_cast<double>(placement.on_first_host) / cluster.cores_per_host)
          : 1.0;
  double seconds = formula(placement.size, bytes) * turns;
  PriceSource source = PriceSource::Formula;
  MeasuredSizes sizes;
  if (*placement.level == 0) {
    const ShapeCorrection correction =
        collective_correction(collective, placement.size, bytes, cluster);
    seconds *= correction.factor;
    if (correction.near) source = PriceSource::Interpolated;
    sizes = measured_messages(cluster, bytes);
    if (const auto measured =
            measured_seconds(cluster, comm_op(collective), placement, bytes, formula)) {
      seconds = measured->seconds;
      source = measured->exact ? PriceSource::Measured : PriceSource::Interpolated;
      sizes = measured->sizes;
    }
  }
  Price price = with_demands(seconds, bus_bytes(collective, bytes, placement.size), source,
                             placement, cluster);
  price.sizes = sizes;
  return price;
}

Price price_transfer(std::int64_t message_bytes, const GroupPlacement& placement,
                     const Cluster& cluster) {
  if (placement.size == 1) return {};
  const auto bytes = static_cast<double>(message_bytes);
  const int level = *placement.level;
  const auto formula = [&](int /*group_size*/, double at_bytes) {
    double best = std::numeric_limits<double>::infinity();
    for (const Protocol& protocol : cluster.communication.protocols)
      best = std::min(
          best, protocol.base_us / kMicroseconds + hop_seconds(cluster, level, protocol) +
                    at_bytes / (pair_bytes_per_s(cluster, level) * protocol.bandwidth_fraction));
    return best;
  };
  const GroupPlacement pair{.size = 2};
  double seconds = formula(2, bytes);
  PriceSource source = PriceSource::Formula;
  MeasuredSizes sizes;
  if (level == 0) {
    sizes = measured_messages(cluster, bytes);
    if (const auto measured =
            measured_seconds(cluster, program::CommOp::PointToPoint, pair, bytes, formula)) {
      seconds = measured->seconds;
      source = measured->exact ? PriceSource::Measured : PriceSource::Interpolated;
      sizes = measured->sizes;
    }
  }
  Price price = with_demands(seconds, bytes, source, placement, cluster);
  price.sizes = sizes;
  return price;
}

}  // namespace meshplan::sim
