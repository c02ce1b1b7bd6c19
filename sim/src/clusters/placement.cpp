#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/units.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {
namespace {

/// Distinct values of rank / size, and the fewest ranks that share one. `ranks` ascend.
struct Domains {
  int count = 0;
  int fewest = 0;
};

/// The first of `ranks`, which ascend, outside the domain of `size` ranks that *begin lies in.
std::vector<int>::const_iterator end_of_domain(std::vector<int>::const_iterator begin,
                                               const std::vector<int>& ranks, int size) {
  const std::int64_t next = (std::int64_t{*begin} / size + 1) * size;
  return std::find_if(begin, ranks.end(), [&](int rank) { return rank >= next; });
}

Domains domains_of(const std::vector<int>& ranks, int size) {
  Domains domains;
  for (auto begin = ranks.begin(); begin != ranks.end();) {
    const auto end = end_of_domain(begin, ranks, size);
    const int members = static_cast<int>(end - begin);
    domains.fewest = domains.count == 0 ? members : std::min(domains.fewest, members);
    ++domains.count;
    begin = end;
  }
  return domains;
}

int group_span(const Cluster& cluster, std::size_t level) {
  const int ranks = cluster.fabric[level].ranks_per_group;
  return ranks == 0 ? std::max(1, cluster.num_ranks()) : ranks;
}

}  // namespace

GroupPlacement place(const Cluster& cluster, const std::vector<int>& ranks) {
  require_invariant(!ranks.empty(), "a group has at least one member");
  if (!std::ranges::is_sorted(ranks)) {  // a million come sorted
    std::vector<int> sorted = ranks;
    std::ranges::sort(sorted);
    return place(cluster, sorted);
  }
  require_invariant(ranks.front() >= 0 && ranks.back() < cluster.num_ranks(),
                    "a group's ranks lie inside the cluster");
  GroupPlacement placement;
  placement.size = static_cast<int>(ranks.size());
  placement.on_first_host = static_cast<int>(
      end_of_domain(ranks.begin(), ranks, cluster.devices_per_node) - ranks.begin());
  if (placement.size == 1) return placement;
  for (std::size_t level = 0; level < cluster.fabric.size(); ++level) {
    const Domains domains = domains_of(ranks, group_span(cluster, level));
    placement.domains.push_back(domains.count);
    placement.members_per_domain.push_back(domains.fewest);
    if (domains.count == 1) {
      placement.level = static_cast<int>(level);
      return placement;
    }
  }
  throw InvariantError("the last fabric level does not hold all ranks");
}

int level_between(const Cluster& cluster, int a, int b) {
  for (std::size_t level = 0; level < cluster.fabric.size(); ++level)
    if (a / group_span(cluster, level) == b / group_span(cluster, level))
      return static_cast<int>(level);
  throw InvariantError("the last fabric level does not hold both ranks");
}

namespace {

/// Groups whose messages are gradients and parameters: each buffer is used once in a long while.
bool moves_parameters(program::Group group) {
  using program::Group;
  switch (group) {
    case Group::Dp:
    case Group::DpCp:
    case Group::ExpertDp:
    case Group::Embedding:
    case Group::KvCopies:
    case Group::ZeroShards:
    case Group::ZeroReplicas:
    case Group::ExpertZeroShards:
    case Group::ExpertZeroReplicas:
      return true;
    case Group::Tp:
    case Group::Cp:
    case Group::Pp:
    case Group::TpPp:
    case Group::World:
    case Group::Ep:
    case Group::Etp:
    case Group::EpWithin:
    case Group::EpAcross:
      return false;
  }
  throw InvariantError("unknown group");
}

}  // namespace

GroupPlacement place(const Cluster& cluster, const program::Mesh& mesh, program::Group group,
                     int rank) {
  GroupPlacement placement = place(cluster, mesh.group(group, rank));
  placement.cold = moves_parameters(group);
  return placement;
}

Cluster with_ranks(const Cluster& cluster, int num_ranks) {
  if (num_ranks < 1 || num_ranks > limits::kRanks)
    throw ConfigError(
        fmt::format("{} ranks asked of cluster '{}': at least 1 is needed, and at "
                    "most {} are supported",
                    num_ranks, cluster.name, limits::kRanks));
  if (!cluster.other_nodes.empty() && num_ranks != cluster.num_ranks())
    throw ConfigError(fmt::format(
        "{} ranks asked of cluster '{}', which has nodes of {} types and {} ranks: say how many "
        "nodes of each type there are, as in dgx-h100:4+dgx-a100:4",
        num_ranks, cluster.name, num_node_types(cluster), cluster.num_ranks()));
  Cluster resized = cluster;
  std::erase_if(resized.slow_ranks, [&](const SlowRank& slow) { return slow.rank >= num_ranks; });
  const int per_node = cluster.devices_per_node;
  const bool one_cpu_host = cluster.device.kind == DeviceKind::Cpu && cluster.num_nodes == 1;
  if (num_ranks <= per_node || one_cpu_host) {
    resized.num_nodes = 1;
    resized.devices_per_node = num_ranks;
  } else if (num_ranks % per_node == 0) {
    resized.num_nodes = num_ranks / per_node;
  } else {
    const int below = num_ranks / per_node * per_node;
    const int nearest = num_ranks - below < below + per_node - num_ranks ? below : below + per_node;
    throw ConfigError(fmt::format(
        "{} ranks do not fill whole nodes of cluster '{}' ({} ranks a node); nearest: {}",
        num_ranks, cluster.name, per_node, nearest));
  }
  const bool beyond_fabric = resized.fabric.empty()
                                 ? num_ranks > 1
                                 : resized.fabric.back().ranks_per_group != 0 &&
                                       resized.fabric.back().ranks_per_group < num_ranks;
  if (beyond_fabric)
    throw ConfigError(
        fmt::format("cluster '{}' has no fabric that connects {} ranks; at most {}", cluster.name,
                    num_ranks, resized.fabric.empty() ? 1 : resized.fabric.back().ranks_per_group));
  return resized;
}

int first_nccl_minor(FabricOffer offer) {
  switch (offer) {
    case FabricOffer::Nvls:
      return 17;
    case FabricOffer::CollNet:
      return 6;
    case FabricOffer::Pat:
      return 23;
  }
  throw InvariantError("unknown offer");
}

double noise_of(const Cluster& cluster, int ranks_on_host) {
  const double others = cluster.cores_per_host - 1;
  const double part = others > 0 ? std::clamp((ranks_on_host - 1) / others, 0.0, 1.0) : 0.0;
  return cluster.noise.one_rank + part * (cluster.noise.all_cores - cluster.noise.one_rank);
}

double with_step_effects(const Cluster& cluster, double seconds) {
  const double straggling = cluster.jitter * std::log2(static_cast<double>(cluster.num_ranks()));
  const double noise = noise_of(cluster, cluster.devices_per_node);
  return seconds * (1 + straggling + noise) + cluster.step_overhead_ms / kMilliseconds;
}

double peak_flop_per_s(const Cluster& cluster, DType dtype) {
  const auto& peaks = cluster.device.peak_tflop_per_s;
  if (const auto exact = peaks.find(std::string(name_of(dtype))); exact != peaks.end())
    return exact->second * 1e12;
  // A device without its own path computes 16-bit types in fp32 and integers never on the peak.
  if (const auto single = peaks.find("fp32"); single != peaks.end()) return single->second * 1e12;
  throw ConfigError(fmt::format("cluster '{}': device.peak_tflop_per_s has no entry for {}",
                                cluster.name, name_of(dtype)));
}

double float8_peak_flop_per_s(const Cluster& cluster) {
  const auto& peaks = cluster.device.peak_tflop_per_s;
  if (const auto exact = peaks.find("fp8"); exact != peaks.end()) return exact->second * 1e12;
  if (cluster.device.kind == DeviceKind::Cpu) return peak_flop_per_s(cluster, DType::F32);
  throw ConfigError(fmt::format(
      "cluster '{}': {} has no matrix units for FP8 (device.peak_tflop_per_s has no 'fp8'; NVIDIA "
      "GPUs have them from Ada and Hopper on); use --precision bf16",
      cluster.name, cluster.device.name));
}

}  // namespace meshplan::sim
