// The layout of an elastic run's next job: how many ranks, on which hosts, by which plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options/run/elastic_options.hpp"
#include "planner/search/search.hpp"
#include "program/plan/plan.hpp"
#include "runtime/elastic/nodes.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::cli {

/// What stays the same for all jobs of a run.
struct ElasticRun {
  program::Plan plan;    // that the run was started with, and its options have changed
  sim::Cluster cluster;  // of that plan
  RankRange range;
  bool any_placement = false;  // ranks of one node may be spread over several
};

struct ElasticLayout {
  program::Plan plan;  // with its prediction
  sim::Cluster cluster;
  std::vector<runtime::HostSlots> hosts;  // one without a name: this machine
  double step_time_s = 0;                 // predicted
  bool is_original = false;               // the run's own plan
  std::string change;                     // against the run's own plan; empty if it is that
  std::string reason;

  int ranks() const { return plan.parallel.world_size(); }
};

/// The cluster of a job on these hosts, with the slow slots that are known of them.
sim::Cluster with_slow_slots(sim::Cluster cluster, const runtime::Nodes& nodes,
                             const std::vector<runtime::HostSlots>& hosts);

/// The layout on what can be used now: the run's own plan where its ranks have room; else the plan
/// that planner::replan finds for the most ranks that have room, or for fewer where the prediction
/// is faster. Where ranks are slow the own plan is one of those that are compared.
/// @returns nothing if no number of ranks within the range has room and a plan
/// @param why_not  gets the reason then
std::optional<ElasticLayout> choose_layout(const ElasticRun& run, const runtime::Nodes& nodes,
                                           const planner::ParallelFor& parallel_for,
                                           std::string& why_not);

/// A way to go on, and its plan.
struct WayOn {
  runtime::Nodes nodes;                 // as they are known then
  std::optional<ElasticLayout> layout;  // the fastest on them; nothing: see why_not
  std::string why_not;
};

/// Found beside a job, whose ranks need the cores: in one thread.
WayOn way_on(const ElasticRun& run, runtime::Nodes nodes);

}  // namespace meshplan::cli
