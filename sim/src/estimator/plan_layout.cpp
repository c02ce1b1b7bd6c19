#include "estimator/plan_layout.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "core/index.hpp"

namespace meshplan::sim {

using program::Group;

namespace {

int ranks_on_host(const program::Mesh& mesh, int stage, int host, const Cluster& cluster) {
  const int begin = host * cluster.devices_per_node;
  const int end = std::min(begin + cluster.devices_per_node, mesh.world_size());
  int count = 0;
  for (int rank = begin; rank < end; ++rank) count += mesh.coordinates(rank).pp == stage ? 1 : 0;
  return count;
}

/// Ranks whose groups stand for all: the first, and on fabrics whose domains do not divide the
/// ranks evenly (72 GPUs, of groups of 16) those at the domains' ends, whose groups may lie in two.
std::vector<int> telling_ranks(const program::Mesh& mesh, const Cluster& cluster) {
  constexpr int kMostDomains = 16;
  std::vector<int> ranks = {mesh.rank_of({})};
  for (const FabricLevel& level : cluster.fabric) {
    const int span = level.ranks_per_group;
    if (span == 0 || span >= mesh.world_size() || mesh.world_size() % span == 0) continue;
    const int domains = std::min(kMostDomains, mesh.world_size() / span);
    for (int domain = 1; domain <= domains; ++domain)
      ranks.insert(ranks.end(), {domain * span - 1, domain * span});
  }
  return ranks;
}

/// Does a group that lies like this take longer than one like that?
bool is_further_apart(const GroupPlacement& a, const GroupPlacement& b) {
  if (a.level != b.level) return a.level > b.level;
  return a.members_per_domain < b.members_per_domain;
}

/// @param telling  at least one rank; those of a stage, or of all
PlanLayout layout_of(const program::Plan& plan, const Cluster& cluster, const program::Mesh& mesh,
                     const std::vector<int>& telling) {
  PlanLayout layout;
  const int first = mesh.rank_of({});
  const int pp = mesh.config().pp;
  const auto of = [&](Group group) {  // all wait for the one that takes longest
    GroupPlacement furthest = place(cluster, mesh, group, telling.front());
    for (const int rank : std::span(telling).subspan(1))
      if (GroupPlacement other = place(cluster, mesh, group, rank);
          is_further_apart(other, furthest))
        furthest = std::move(other);
    return furthest;
  };
  layout.tasks = {.tp = of(Group::Tp),
                  .cp = of(Group::Cp),
                  .ep = of(Group::Ep),
                  .etp = of(Group::Etp),
                  .ep_within = of(Group::EpWithin),
                  .ep_across = of(Group::EpAcross)};
  layout.tp = PricedGroup(layout.tasks.tp);
  layout.replica = PricedGroup(of(Group::TpPp));
  layout.world = PricedGroup(of(Group::World));
  layout.embedding = PricedGroup(of(Group::Embedding));
  layout.data.dense = PricedGroup(of(Group::DpCp));
  layout.data.experts = PricedGroup(of(Group::ExpertDp));
  layout.data.kv_copies = PricedGroup(of(Group::KvCopies));
  if (plan.zero_stage > 0) {
    layout.data.dense_shards = PricedGroup(of(Group::ZeroShards));
    layout.data.expert_shards = PricedGroup(of(Group::ExpertZeroShards));
    layout.data.dense_replicas = PricedGroup(of(Group::ZeroReplicas));
    layout.data.expert_replicas = PricedGroup(of(Group::ExpertZeroReplicas));
  }
  for (int stage = 0; stage + 1 < pp; ++stage)
    layout.neighbours.push_back(
        place(cluster, {mesh.rank_of({.pp = stage}), mesh.rank_of({.pp = stage + 1})}));
  layout.ends = pp > 1 ? place(cluster, {first, mesh.rank_of({.pp = pp - 1})}) : GroupPlacement{};
  const bool cpu = cluster.device.kind == DeviceKind::Cpu;
  for (int stage = 0; stage < pp; ++stage) {
    layout.host.push_back(mesh.rank_of({.pp = stage}) / cluster.devices_per_node);
    layout.cores.push_back(cpu ? ranks_on_host(mesh, stage, layout.host.back(), cluster) : 1);
  }
  return layout;
}

bool lie_alike(const PlanLayout& a, const PlanLayout& b) {
  const auto same = [](const PricedGroup& one, const PricedGroup& other) {
    return one.placement() == other.placement();
  };
  const DataGroups &of_a = a.data, &of_b = b.data;
  return same(a.tp, b.tp) && same(a.replica, b.replica) && same(a.embedding, b.embedding) &&
         a.tasks.cp == b.tasks.cp && a.tasks.ep == b.tasks.ep && a.tasks.etp == b.tasks.etp &&
         a.tasks.ep_within == b.tasks.ep_within && a.tasks.ep_across == b.tasks.ep_across &&
         same(of_a.dense, of_b.dense) && same(of_a.experts, of_b.experts) &&
         same(of_a.kv_copies, of_b.kv_copies) && same(of_a.dense_shards, of_b.dense_shards) &&
         same(of_a.expert_shards, of_b.expert_shards) &&
         same(of_a.dense_replicas, of_b.dense_replicas) &&
         same(of_a.expert_replicas, of_b.expert_replicas);
}

}  // namespace

PlanLayout layout_of(const program::Plan& plan, const Cluster& cluster) {
  const program::Mesh mesh = program::mesh_of(plan);
  return layout_of(plan, cluster, mesh, telling_ranks(mesh, cluster));
}

StageLayouts layouts_of_stages(const program::Plan& plan, const Cluster& cluster) {
  const program::Mesh mesh = program::mesh_of(plan);
  const std::vector<int> telling = telling_ranks(mesh, cluster);
  const int pp = mesh.config().pp;
  if (pp == 1 || telling.size() == 1) return {};
  std::vector<std::vector<int>> of_stage(at(pp));
  for (int stage = 0; stage < pp; ++stage) of_stage[at(stage)] = {mesh.rank_of({.pp = stage})};
  for (const int rank : telling) of_stage[at(mesh.coordinates(rank).pp)].push_back(rank);
  StageLayouts layouts;
  for (const std::vector<int>& ranks : of_stage) {
    PlanLayout layout = layout_of(plan, cluster, mesh, ranks);
    const auto same = std::ranges::find_if(
        layouts.different, [&](const PlanLayout& other) { return lie_alike(layout, other); });
    layouts.of_stage.push_back(static_cast<std::size_t>(same - layouts.different.begin()));
    if (same == layouts.different.end()) layouts.different.push_back(std::move(layout));
  }
  if (layouts.different.size() == 1) return {};
  return layouts;
}

}  // namespace meshplan::sim
