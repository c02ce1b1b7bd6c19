#include "requests/check_request.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>

#include "core/error.hpp"
#include "options/inputs.hpp"
#include "options/plan_options.hpp"
#include "options/what_if.hpp"
#include "output/progress.hpp"
#include "planner/check/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plan_file/plan_settings.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::cli {
namespace {

/// What a file asks to run: a plan, and what its stack was told besides.
struct Subject {
  program::Plan plan;
  std::string format;  // of that file; empty: a plan's
  planner::Facts facts;
  std::optional<sim::Cluster> cluster;        // named or in the plan's file, before it is changed
  std::vector<std::string> cluster_settings;  // of --set
  std::vector<std::string> changes;           // of the file and the cluster, by --set
  std::vector<std::string> assumptions;
  std::vector<std::string> ignored;
};

std::optional<sim::Cluster> cluster_beside(const std::string& text, const std::string& file,
                                           const CheckRequest& asked) {
  if (asked.cluster) return load_cluster(*asked.cluster);
  const program::Plan plan = program::read_plan(text, file);
  if (plan.cluster_json.empty()) return std::nullopt;
  return cluster_of(plan, file);
}

Subject subject_of(const CheckRequest& asked) {
  PlanInput input = read_plan(*asked.file, asked.foreign, asked.context);
  Subject subject{.plan = {},
                  .format = std::move(input.format),
                  .facts = std::move(input.facts),
                  .cluster = {},
                  .cluster_settings = {},
                  .changes = {},
                  .assumptions = std::move(input.assumptions),
                  .ignored = std::move(input.ignored)};
  const std::string file = input_name(*asked.file, "plan");
  std::string text = std::move(input.text);
  subject.cluster = cluster_beside(text, file, asked);
  WhatIf what_if = subject.cluster ? sorted(asked.set, *subject.cluster)
                                   : WhatIf{.cluster = {}, .plan = asked.set};
  subject.cluster_settings = std::move(what_if.cluster);
  if (!what_if.plan.empty()) {
    program::ChangedPlan changed = program::change_plan(text, file, what_if.plan);
    text = std::move(changed.text);
    subject.changes = std::move(changed.changes);
  }
  subject.plan = program::read_plan(text, file);
  take_stack(asked.stack, subject.plan.stack);
  return subject;
}

std::string target_for(const Subject& subject, const CheckRequest& asked) {
  if (asked.target) return planner::rules_for(*asked.target).target;
  // Of DeepSpeed's files some are priced as another stack's runs; the rules are its own.
  if (std::ranges::count(planner::rule_targets(), subject.format) > 0) return subject.format;
  const std::string software = sim::parse_software(subject.plan.stack.software).name;
  return planner::target_of(software).value_or(software);
}

/// A target that is named prices the plan, too, unless --software does.
void ask_stack_of(const std::string& target, const CheckRequest& asked, program::Stack& stack) {
  if (asked.stack.software || planner::target_of(stack.software) == target) return;
  stack = {.software = planner::rules_for(target).software, .settings = {}};
}

/// As many ranks of a cluster as the plan asks for, if it can have so many: else rules alone
/// answer.
void give_ranks(planner::CheckRequest& request, const sim::Cluster& cluster) {
  try {
    request.cluster = sim::with_ranks(cluster, request.plan.parallel.world_size());
  } catch (const ConfigError& error) {
    request.no_cluster = error.what();
  }
}

/// The degrees that --set changed take as many ranks as they ask for.
void give_cluster(planner::CheckRequest& request, Subject& subject, const CheckRequest& asked) {
  if (!subject.cluster) return;
  const sim::Cluster cluster = changed_cluster(*subject.cluster, subject.cluster_settings,
                                               subject.plan.stack.software, subject.changes);
  if (asked.set.empty() && !asked.cluster)
    request.cluster = cluster;
  else
    give_ranks(request, cluster);
}

}  // namespace

void add_check_request(Command& command, CheckRequest& request) {
  command.positional("plan", request.file, "plan file, or another stack's launch script")
      .is_path()
      .takes_json();
  add_foreign_options(command, request.foreign);
  add_foreign_context(command, request.context);
  command
      .option("--for", request.target,
              fmt::format("whose rules: {}; default: those of the stack that the file is for",
                          fmt::join(planner::rule_targets(), ", ")))
      .suggests(planner::rule_targets())
      .option("--cluster", request.cluster,
              "preset or cluster file to predict memory on; default: the plan's own")
      .suggests(sim::cluster_names())
      .takes_file()
      .takes_json();
  add_stack_options(command, request.stack);
  add_set_option(command, request.set);
  command.option("--memory-reserve", request.memory_reserve, kMemoryReserveHelp);
}

reports::CheckReport answer(const CheckRequest& request, const Terminal& terminal) {
  if (!request.file) throw ConfigError("what to check? usage: meshplan check PLAN [--for TARGET]");
  Subject subject = subject_of(request);
  const std::string target = target_for(subject, request);
  if (request.target) ask_stack_of(target, request, subject.plan.stack);
  if (subject.format.empty()) subject.facts = facts_told({}, subject.plan);
  reports::CheckReport report{.request = {.plan = subject.plan,
                                          .beside = subject.facts,
                                          .target = target,
                                          .memory_reserve = memory_reserve(request.memory_reserve)},
                              .result = {},
                              .changes = {},
                              .assumptions = subject.assumptions,
                              .ignored = subject.ignored};
  planner::require_sizes(subject.plan);
  give_cluster(report.request, subject, request);
  report.changes = std::move(subject.changes);
  const ElapsedTime elapsed("checking", terminal);
  report.result = planner::check_plan(report.request);
  return report;
}

Question check_question() {
  const auto request = std::make_shared<CheckRequest>();
  return {
      .name = "check",
      .summary = kCheckSummary,
      .declare = [request](Command& command) { add_check_request(command, *request); },
      .answer = [request](const Command&) { return reports::to_json(answer(*request, kSilent)); }};
}

}  // namespace meshplan::cli
