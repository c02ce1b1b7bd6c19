#include "plan_layout.hpp"

#include <algorithm>

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

}  // namespace

PlanLayout layout_of(const program::Plan& plan, const Cluster& cluster) {
  const program::Mesh mesh = program::mesh_of(plan);
  PlanLayout layout;
  const int first = mesh.rank_of({});
  const int pp = mesh.config().pp;
  const auto of = [&](Group group) { return place(cluster, mesh, group, first); };
  layout.tasks = {
      .tp = of(Group::Tp), .cp = of(Group::Cp), .ep = of(Group::Ep), .etp = of(Group::Etp)};
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
  layout.neighbours = pp > 1 ? place(cluster, {first, mesh.rank_of({.pp = 1})}) : GroupPlacement{};
  layout.ends = pp > 1 ? place(cluster, {first, mesh.rank_of({.pp = pp - 1})}) : GroupPlacement{};
  const bool cpu = cluster.device.kind == DeviceKind::Cpu;
  for (int stage = 0; stage < pp; ++stage) {
    layout.host.push_back(mesh.rank_of({.pp = stage}) / cluster.devices_per_node);
    layout.cores.push_back(cpu ? ranks_on_host(mesh, stage, layout.host.back(), cluster) : 1);
  }
  return layout;
}

}  // namespace meshplan::sim
