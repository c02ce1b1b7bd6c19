#include "options/plan_input.hpp"

#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"
#include "options/foreign.hpp"
#include "options/inputs.hpp"
#include "options/plan_for_ranks.hpp"
#include "options/what_if.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plan_file/plan_settings.hpp"
#include "reports/search_report.hpp"
#include "sim/clusters/what_if.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::cli {
namespace {

/// @throws ConfigError for a plan that breaks a rule, or that its stack cannot be asked for
void require_valid(const program::Plan& plan, const std::string& file) {
  std::vector<program::Violation> violations = program::check(plan);
  if (violations.empty()) violations = sim::software_violations(plan);
  for (const program::Violation& violation : violations)
    throw ConfigError(fmt::format("{}: {}", file, violation.message));
}

void expect_imbalance(program::Plan& plan, const std::string& imbalance, const std::string& file) {
  plan.expected_expert_imbalance = expert_imbalance(imbalance, plan.model).over(plan.parallel.ep);
  for (const program::Violation& violation : program::check(plan))
    throw ConfigError(
        fmt::format("{}: --expert-imbalance {}: {}", file, imbalance, violation.message));
}

/// The plan's own cluster, or the one that --cluster names, before anything is changed.
sim::Cluster cluster_beside(const std::string& text, const std::string& file,
                            const std::optional<std::string>& name) {
  return name ? load_cluster(*name) : cluster_of(program::read_plan(text, file), file);
}

}  // namespace

PlanOnCluster plan_of_file(const std::string& file_or_json, const PlanOptions& options) {
  PlanInput input =
      read_plan(file_or_json, options.foreign,
                {.model = options.model, .reading = options.reading, .ranks = options.ranks});
  const std::string file = input_name(file_or_json, "plan");
  PlanOnCluster loaded{.notes = notes_of(input)};
  std::string text = std::exchange(input.text, "");
  loaded.cluster = cluster_beside(text, file, options.cluster);
  const WhatIf what_if = sorted(options.set, loaded.cluster);
  if (!what_if.plan.empty()) {
    program::ChangedPlan changed =
        program::change_plan(text, file, what_if.plan, sim::figure_names(loaded.cluster));
    text = std::move(changed.text);
    loaded.changes = std::move(changed.changes);
  }
  loaded.plan = program::read_plan(text, file);
  take_stack(options.stack, loaded.plan.stack);
  if (options.expert_imbalance) expect_imbalance(loaded.plan, *options.expert_imbalance, file);
  add_adapters(loaded.plan, options.adapters, file);
  freeze(loaded.plan, options.freeze, file);
  require_valid(loaded.plan, file);
  if (options.ranks && *options.ranks != loaded.plan.parallel.world_size()) {
    PlanForRanks made =
        plan_for_ranks(loaded.plan, loaded.cluster, *options.ranks, file, planner::serial());
    loaded.plan = std::move(made.plan);
    loaded.cluster = std::move(made.cluster);
    loaded.changes.push_back("--gpus: " + made.change);
  }
  const int ranks = loaded.plan.parallel.world_size();
  if (options.cluster) loaded.cluster = sim::with_ranks(loaded.cluster, ranks);
  loaded.cluster =
      changed_cluster(loaded.cluster, what_if.cluster, loaded.plan.stack.software, loaded.changes);
  loaded.cluster = with_slow_ranks(loaded.cluster, options.slow_ranks, loaded.changes);
  if (loaded.cluster.num_ranks() != ranks)
    throw ConfigError(
        fmt::format("{}: parallel: the plan has {} ranks ({}), but its cluster has {}; --gpus {} "
                    "plans for as many, and --cluster {} resizes the cluster",
                    file, ranks, program::to_string(loaded.plan.parallel),
                    loaded.cluster.num_ranks(), ranks, loaded.cluster.name));
  loaded.source = std::move(input);
  return loaded;
}

PlanOnCluster plan_of_flags(PlanOptions options) {
  read_schedule_file(options);
  const planner::Constraints& pins = options.constraints;
  if (!options.ranks)
    options.ranks = program::Mesh({.tp = pins.tp.value_or(1),
                                   .cp = pins.cp.value_or(1),
                                   .pp = pins.pp.value_or(1),
                                   .dp = pins.dp.value_or(1)})
                        .world_size();
  ResolvedRequest resolved = resolve(options);
  program::Plan plan = single_plan(resolved);
  return {.plan = std::move(plan),
          .cluster = std::move(resolved.request.cluster),
          .assumptions = std::move(resolved.assumptions),
          .changes = std::move(resolved.changes)};
}

program::Plan plan_beside(const PlanOnCluster& input, const std::string& file_or_json,
                          const std::string& name_of_input) {
  const auto [file, text] = read_input(file_or_json, "plan");
  program::Plan plan = program::parse_plan(text, file);
  const auto fail = [&](const std::string& what, const auto& own, const auto& other) {
    throw ConfigError(
        fmt::format("{}: {} is {}, but in {} it is {}; plans are compared that do the same work on "
                    "the same ranks (`meshplan diff` compares any)",
                    file, what, own, name_of_input, other));
  };
  const program::Plan& other = input.plan;
  if (plan.model != other.model) fail("model", plan.model.name, other.model.name);
  if (plan.parallel.world_size() != other.parallel.world_size())
    fail("the number of ranks", plan.parallel.world_size(), other.parallel.world_size());
  if (plan.workload != other.workload)
    fail("workload", reports::workload_line(plan.workload), reports::workload_line(other.workload));
  return plan;
}

std::string changes_text(const std::vector<std::string>& changes) {
  std::string text;
  for (const std::string& change : changes) text += "set      " + change + "\n";
  return text;
}

std::string origin_text(const PlanOnCluster& input) {
  std::string text;
  for (const std::string& assumption : input.assumptions) text += "assumed  " + assumption + "\n";
  return text + changes_text(input.changes);
}

}  // namespace meshplan::cli
