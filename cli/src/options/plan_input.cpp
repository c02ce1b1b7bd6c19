#include "options/plan_input.hpp"

#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"
#include "options/foreign.hpp"
#include "options/inputs.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plan_file/plan_settings.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::cli {
namespace {

/// @throws ConfigError for a plan that the software cannot be asked for
void require_expressible(const program::Plan& plan, const std::string& software,
                         const std::string& file) {
  for (const program::Violation& violation :
       sim::software_violations(plan, sim::load_execution_profile(software)))
    throw ConfigError(fmt::format("{}: {}", file, violation.message));
}

}  // namespace

PlanOnCluster plan_of_file(const std::string& file_or_json, const PlanOptions& options) {
  PlanInput input =
      read_plan(file_or_json, options.foreign,
                {.model = options.model, .reading = options.reading, .ranks = options.ranks});
  const std::string file = input_name(file_or_json, "plan");
  PlanOnCluster loaded{.software = options.software.value_or(input.software),
                       .settings = input.settings,
                       .notes = notes_of(input)};
  std::string text = std::move(input.text);
  if (!options.set.empty()) {
    program::ChangedPlan changed = program::change_plan(text, file, options.set);
    text = std::move(changed.text);
    loaded.changes = std::move(changed.changes);
  }
  loaded.plan = program::parse_plan(text, file);
  if (options.expert_imbalance) {
    loaded.plan.expected_expert_imbalance =
        expected_expert_imbalance(*options.expert_imbalance, loaded.plan.model);
    for (const program::Violation& violation : program::check(loaded.plan))
      throw ConfigError(fmt::format("{}: --expert-imbalance {}: {}", file,
                                    *options.expert_imbalance, violation.message));
  }
  freeze(loaded.plan, options.freeze, file);
  require_expressible(loaded.plan, loaded.software, file);
  const int ranks = loaded.plan.parallel.world_size();
  if (options.cluster)
    loaded.cluster = sim::with_ranks(load_cluster(*options.cluster), ranks);
  else
    loaded.cluster = cluster_of(loaded.plan, file);
  if (loaded.cluster.num_ranks() != ranks)
    throw ConfigError(
        fmt::format("{}: parallel: the plan has {} ranks ({}), but its cluster has {}", file, ranks,
                    program::to_string(loaded.plan.parallel), loaded.cluster.num_ranks()));
  return loaded;
}

PlanOnCluster plan_of_flags(PlanOptions options) {
  if (!options.set.empty())
    throw ConfigError(
        fmt::format("--set {}: changes a plan's file, and none is given: say the same with a flag",
                    options.set.front()));
  read_schedule_file(options);
  const planner::Constraints& pins = options.constraints;
  if (!options.ranks)
    options.ranks = program::Mesh({.tp = pins.tp.value_or(1),
                                   .cp = pins.cp.value_or(1),
                                   .pp = pins.pp.value_or(1),
                                   .dp = pins.dp.value_or(1)})
                        .world_size();
  ResolvedRequest resolved = resolve(options);
  return {.plan = single_plan(resolved),
          .cluster = std::move(resolved.request.cluster),
          .software = resolved.request.software,
          .assumptions = std::move(resolved.assumptions)};
}

}  // namespace meshplan::cli
