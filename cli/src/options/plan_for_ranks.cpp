#include "options/plan_for_ranks.hpp"

#include <fmt/format.h>
#include <utility>
#include <variant>

#include "core/error.hpp"
#include "core/units.hpp"
#include "planner/elastic/replan.hpp"
#include "program/plan_file/plan_file.hpp"

namespace meshplan::cli {

PlanForRanks plan_for_ranks(const program::Plan& plan, const sim::Cluster& cluster, int ranks,
                            const std::string& file, const planner::ParallelFor& parallel_for) {
  if (!plan.stack.is_own())
    throw ConfigError(fmt::format(
        "{}: --gpus {}: the plan is of {} and has {} ranks; only plans of meshplan's own "
        "runtime are planned again; plan anew: meshplan plan --gpus {}",
        file, ranks, plan.stack.software, plan.parallel.world_size(), ranks));
  PlanForRanks made{.cluster = sim::with_ranks(cluster, ranks)};
  const planner::ReplanOutcome outcome =
      planner::replan({.plan = plan, .cluster = made.cluster}, parallel_for);
  if (const auto* none = std::get_if<planner::NoReplan>(&outcome))
    throw InfeasibleError(
        fmt::format("{}: no plan for {} ranks with the same model, global batch, sequence length "
                    "and precision: "
                    "{}",
                    file, ranks, none->reason));
  const auto& found = std::get<planner::Replanned>(outcome);
  made.plan = found.plan;
  made.change = replanned_text(found.change, found.step_time_s, found.reason);
  return made;
}

std::string replanned_text(const std::string& change, double step_time_s,
                           const std::string& reason) {
  return fmt::format("{} ({:.4g} ms a step predicted){}{}", change, step_time_s * kMilliseconds,
                     reason.empty() ? "" : "; ", reason);
}

std::string plan_file_text(program::Plan plan, const sim::Cluster& cluster) {
  plan.cluster_name = cluster.name;
  plan.cluster_json = sim::to_json(cluster);
  plan.cluster_hash.clear();
  return program::to_json(program::parse_plan(program::to_json(plan), "the plan"));
}

}  // namespace meshplan::cli
