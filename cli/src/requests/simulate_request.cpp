#include "requests/simulate_request.hpp"

#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"
#include "options/inputs.hpp"
#include "output/progress.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plan_file/plan_settings.hpp"

namespace meshplan::cli {
namespace {

/// @throws ConfigError for a plan that the software cannot be asked for
void require_expressible(const program::Plan& plan, const std::string& software,
                         const std::string& file) {
  for (const program::Violation& violation :
       sim::software_violations(plan, sim::load_execution_profile(software)))
    throw ConfigError(fmt::format("{}: {}", file, violation.message));
}

PlanOnCluster from_file(const SimulateRequest& request) {
  auto [file, text] = read_input(*request.file, "plan");
  PlanOnCluster loaded;
  if (!request.set.empty()) {
    program::ChangedPlan changed = program::change_plan(text, file, request.set);
    text = std::move(changed.text);
    loaded.changes = std::move(changed.changes);
  }
  loaded.plan = program::parse_plan(text, file);
  if (request.plan.expert_imbalance) {
    loaded.plan.expected_expert_imbalance =
        expected_expert_imbalance(*request.plan.expert_imbalance, loaded.plan.model);
    for (const program::Violation& violation : program::check(loaded.plan))
      throw ConfigError(fmt::format("{}: --expert-imbalance {}: {}", file,
                                    *request.plan.expert_imbalance, violation.message));
  }
  freeze(loaded.plan, request.plan.freeze, file);
  require_expressible(loaded.plan, request.plan.software, file);
  const int ranks = loaded.plan.parallel.world_size();
  if (request.plan.cluster)
    loaded.cluster = sim::with_ranks(load_cluster(*request.plan.cluster), ranks);
  else
    loaded.cluster = cluster_of(loaded.plan, file);
  if (loaded.cluster.num_ranks() != ranks)
    throw ConfigError(
        fmt::format("{}: parallel: the plan has {} ranks ({}), but its cluster has {}", file, ranks,
                    program::to_string(loaded.plan.parallel), loaded.cluster.num_ranks()));
  return loaded;
}

// Without --gpus, exactly the ranks that the degrees ask for.
PlanOnCluster from_flags(SimulateRequest request) {
  if (!request.set.empty())
    throw ConfigError(
        fmt::format("--set {}: changes a plan's file, and none is given: say the same with a flag",
                    request.set.front()));
  read_schedule_file(request.plan);
  const planner::Constraints& pins = request.plan.constraints;
  if (!request.plan.ranks)
    request.plan.ranks = program::Mesh({.tp = pins.tp.value_or(1),
                                        .cp = pins.cp.value_or(1),
                                        .pp = pins.pp.value_or(1),
                                        .dp = pins.dp.value_or(1)})
                             .world_size();
  ResolvedRequest resolved = resolve(request.plan);
  return {.plan = single_plan(resolved),
          .cluster = std::move(resolved.request.cluster),
          .assumptions = std::move(resolved.assumptions)};
}

}  // namespace

void add_simulate_request(Command& command, SimulateRequest& request) {
  command.positional("plan", request.file, "plan file; or describe the plan with the flags below")
      .is_path()
      .takes_json();
  add_workload_options(command, request.plan);
  add_parallel_options(command, request.plan);
  command.group("With a plan file")
      .option("--set", request.set,
              "PATH=VALUE changes a value of the file, for example parallel.tp=4; may be repeated");
  command.group("How it is simulated")
      .option("--memory-reserve", request.memory_reserve, kMemoryReserveHelp)
      .flag("--memory-timeline", request.memory_timeline,
            "show what each stage's memory holds over the step, and when most")
      .flag("--all-ranks", request.all_ranks, "play every rank, not one per stage");
}

PlanOnCluster load(const SimulateRequest& request) {
  return request.file ? from_file(request) : from_flags(request);
}

reports::SimulationReport simulate(const SimulateRequest& request, const PlanOnCluster& loaded,
                                   bool record_spans, bool memory_timelines,
                                   const Terminal& terminal) {
  const bool timelines = memory_timelines || request.memory_timeline;
  const ElapsedTime elapsed("simulating", terminal);
  return reports::simulation_report(
      loaded.plan, loaded.cluster,
      {.simulation = {.fold = !request.all_ranks, .record_spans = record_spans || timelines},
       .memory_timelines = timelines,
       .memory_reserve = memory_reserve(request.memory_reserve)});
}

void refuse_beside_file(const Command& command, const SimulateRequest& request) {
  if (request.file) refuse_beside_file(command, input_name(*request.file, "plan"));
}

void refuse_operations(const std::string& flag) {
  throw ConfigError(
      fmt::format("{}: needs every operation, which is known of --software {} only; leave it out",
                  flag, sim::kOwnSoftware));
}

reports::SoftwareReport simulate_other_software(const SimulateRequest& request,
                                                const PlanOnCluster& loaded) {
  if (request.memory_timeline) refuse_operations("--memory-timeline");
  if (request.all_ranks) refuse_operations("--all-ranks");
  return reports::software_report(loaded.plan, loaded.cluster, request.plan.software,
                                  memory_reserve(request.memory_reserve));
}

std::string simulation_json(const SimulateRequest& request, const PlanOnCluster& loaded,
                            const Terminal& terminal) {
  if (!request.of_own_software()) return reports::to_json(simulate_other_software(request, loaded));
  return reports::to_json(simulate(request, loaded, false, false, terminal));
}

}  // namespace meshplan::cli
