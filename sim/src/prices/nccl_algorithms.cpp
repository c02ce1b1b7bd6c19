// Latencies in microseconds and efficiencies are those of NCCL's own cost model
// (src/graph/tuning.cc of 2.19 for NVLS, NVLSTree and CollNet, of 2.24 for PAT and the efficiency
// of NVLS), by which it chooses among them. What moves over links is counted here, by the
// algorithms' descriptions.
//
// m bytes that one rank passes in, n ranks, l of them in one NVLink domain.
#include "prices/nccl_algorithms.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/units.hpp"
#include "prices/collective_rates.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;

constexpr double kNvlsLatencyUs = 23;     // over NVLink, whatever n
constexpr double kNvlsTreeHopUs = 14;     // over the network
constexpr double kCollNetLatencyUs = 31;  // over the network, whatever n
constexpr double kCollNetInsideUs = 3.7;  // over NVLink, if there is a second GPU
constexpr double kCollNetEachUs = 0.4;    // of every further GPU in a node
constexpr double kCollNetFromHopper = 0.85;
constexpr double kPatBaseUs = 8;
constexpr double kPatHopUs = 14.0 / 3.5;  // of a step of the tree over the network
constexpr double kPatRankUs = 2.8;        // of every rank: the part that is still linear
constexpr double kPatBandwidth = 0.75;

/// Part of its links' rate at which NVSwitch sums; 0 where it does not.
double nvls_efficiency(Architecture architecture) {
  switch (architecture) {
    case Architecture::Hopper:
      return 0.85;
    case Architecture::Blackwell:
      return 0.74;
    case Architecture::Ampere:
    case Architecture::Ada:
    case Architecture::BlackwellRtx:
    case Architecture::Cdna3:  // no switch
    case Architecture::Cdna4:
    case Architecture::Other:
      return 0;
  }
  throw InvariantError("unknown architecture");
}

bool has(const Cluster& cluster, FabricOffer offer) {
  return std::ranges::find(cluster.communication.offers, offer) !=
         cluster.communication.offers.end();
}

int ranks_in_domain(const GroupPlacement& placement) {
  return *placement.level == 0 ? placement.size : placement.members_per_domain.front();
}

int domains(const GroupPlacement& placement) {
  return *placement.level == 0 ? 1 : placement.domains.front();
}

double log2_floor(int n) {
  return std::floor(std::log2(static_cast<double>(n)));
}

/// What leaves an NVLink domain per second, over the slowest level outside it.
double network_bytes_per_s(const Cluster& cluster, const GroupPlacement& placement) {
  double slowest = outgoing_bytes_per_s(cluster, placement, 1);
  for (int level = 2; level <= *placement.level; ++level)
    slowest = std::min(slowest, outgoing_bytes_per_s(cluster, placement, level));
  return slowest;
}

double nvls_latency_us(const Cluster& cluster) {
  return cluster.communication.nvls_us > 0 ? cluster.communication.nvls_us : kNvlsLatencyUs;
}

/// The same of a cluster: as measured, else by NCCL's tuning.
double nvls_efficiency(const Cluster& cluster) {
  const double tuning = nvls_efficiency(cluster.device.architecture);
  return tuning > 0 && cluster.communication.nvls > 0 ? cluster.communication.nvls : tuning;
}

/// Seconds per byte in a domain whose switches sum: every rank sends all that it passes in, once,
/// and the l-th part whose sum it has asked for, to be multicast.
double nvls_seconds_per_byte(const Cluster& cluster, const GroupPlacement& placement) {
  const double links = outgoing_bytes_per_s(cluster, placement, 0) / cluster.fabric.front().reached;
  const double rate = links * nvls_efficiency(cluster);
  return (1 + 1.0 / ranks_in_domain(placement)) / rate;
}

/// NVLS in each node, between nodes a double binary tree over all network cards: with two nodes
/// either sends its sum once, beyond that an inner node sends upwards and downwards.
double nvls_tree_seconds(double m, const GroupPlacement& placement, const Cluster& cluster) {
  const int nodes = domains(placement);
  const double network = (nodes > 2 ? 2 : 1) / network_bytes_per_s(cluster, placement);
  const double latency = nvls_latency_us(cluster) + 2 * log2_floor(nodes) * kNvlsTreeHopUs;
  return latency / kMicroseconds + m * std::max(nvls_seconds_per_byte(cluster, placement), network);
}

/// Summed in the node to the GPU beside each card, by the network's switches over the nodes, and
/// spread in the node again.
double coll_net_seconds(double m, const GroupPlacement& placement, const Cluster& cluster) {
  const int l = ranks_in_domain(placement);
  const bool from_hopper = nvls_efficiency(cluster.device.architecture) > 0;
  const double rate =
      outgoing_bytes_per_s(cluster, placement, 0) * (from_hopper ? kCollNetFromHopper : 1);
  const double inside = 2.0 * (l - 1) / l / rate;
  const double network = 1 / network_bytes_per_s(cluster, placement);
  const double latency =
      2 * (std::min(1, l - 1) * kCollNetInsideUs + (l - 1) * kCollNetEachUs) + kCollNetLatencyUs;
  return latency / kMicroseconds + m * std::max(inside, network);
}

}  // namespace

bool is_nccl_algorithm(Algorithm algorithm) {
  return algorithm == Algorithm::Nvls || algorithm == Algorithm::NvlsTree ||
         algorithm == Algorithm::CollNet || algorithm == Algorithm::Pat;
}

bool offers_nccl_algorithm(Algorithm algorithm, Collective collective,
                           const GroupPlacement& placement, const Cluster& cluster) {
  if (placement.size < 2) return false;
  const bool sums = collective == Collective::AllReduce;
  const bool crosses = *placement.level > 0;
  const bool nvls =
      has(cluster, FabricOffer::Nvls) && nvls_efficiency(cluster.device.architecture) > 0;
  switch (algorithm) {
    case Algorithm::Nvls:
      return nvls && sums && !crosses;
    case Algorithm::NvlsTree:
      return nvls && sums && crosses && ranks_in_domain(placement) > 1;
    case Algorithm::CollNet:
      return has(cluster, FabricOffer::CollNet) && sums && crosses;
    case Algorithm::Pat:
      return has(cluster, FabricOffer::Pat) && crosses && domains(placement) == placement.size &&
             (collective == Collective::AllGather || collective == Collective::ReduceScatter);
    case Algorithm::Ring:
    case Algorithm::Tree:
    case Algorithm::RecursiveDoubling:
      return false;
  }
  throw InvariantError("unknown algorithm");
}

double nccl_algorithm_seconds(Algorithm algorithm, Collective collective, double m,
                              const GroupPlacement& placement, const Cluster& cluster) {
  const int n = placement.size;
  switch (algorithm) {
    case Algorithm::Nvls:
      return nvls_latency_us(cluster) / kMicroseconds +
             m * nvls_seconds_per_byte(cluster, placement);
    case Algorithm::NvlsTree:
      return nvls_tree_seconds(m, placement, cluster);
    case Algorithm::CollNet:
      return coll_net_seconds(m, placement, cluster);
    case Algorithm::Pat:
      return (kPatBaseUs + log2_floor(n) * kPatHopUs + n * kPatRankUs) / kMicroseconds +
             bus_bytes(collective, m, n) / (kPatBandwidth * bus_bytes_per_s(cluster, placement));
    case Algorithm::Ring:
    case Algorithm::Tree:
    case Algorithm::RecursiveDoubling:
      break;
  }
  throw InvariantError("not one of NCCL's further algorithms");
}

}  // namespace meshplan::sim
