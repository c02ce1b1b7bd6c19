#pragma once

#include <vector>

#include "estimator/chunk_costs.hpp"
#include "estimator/gradient_buckets.hpp"
#include "prices/priced_group.hpp"
#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Where the groups of a mesh sit on the cluster.
struct PlanLayout {
  PricedGroup tp, replica, world, embedding;
  DataGroups data;
  TaskGroups tasks;
  std::vector<GroupPlacement> neighbours;  // of the first pipeline: each stage with the next
  GroupPlacement ends;                     // its last stage with the first
  std::vector<int> host;                   // of each stage's first rank
  std::vector<double> cores;  // that the stage's ranks of that host hold while they compute
};

/// One layout for all stages, with the slowest group of each kind.
PlanLayout layout_of(const program::Plan& plan, const Cluster& cluster);

/// Where a fabric's domains divide some stages' groups and not others' (72 GPUs, stages of 32).
struct StageLayouts {
  std::vector<PlanLayout> different;  // none if all stages lie alike
  std::vector<std::size_t> of_stage;  // index into `different`
};
StageLayouts layouts_of_stages(const program::Plan& plan, const Cluster& cluster);

}  // namespace meshplan::sim
