// A run's plan, made again for another number of ranks.
#pragma once

#include <string>

#include "planner/search/search.hpp"
#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::cli {

struct PlanForRanks {
  program::Plan plan;    // with its prediction; its model and workload are the old one's
  sim::Cluster cluster;  // with as many ranks
  std::string change;    // "dp4 mbs1 -> dp3 mbs1, 12.1 ms a step predicted; no other layout ..."
};

/// planner::replan on as many ranks of the cluster.
/// @param file  of the plan, for errors. @throws ConfigError for a plan of other software, and for
/// ranks that the cluster cannot have; InfeasibleError if no plan fits them
PlanForRanks plan_for_ranks(const program::Plan& plan, const sim::Cluster& cluster, int ranks,
                            const std::string& file, const planner::ParallelFor& parallel_for);

/// "dp4 mbs1 -> dp3 mbs1 (12.1 ms a step predicted); why"
std::string replanned_text(const std::string& change, double step_time_s,
                           const std::string& reason);

/// The text of a plan's file on another cluster.
std::string plan_file_text(program::Plan plan, const sim::Cluster& cluster);

}  // namespace meshplan::cli
