#include "requests/simulate_request.hpp"

#include <fmt/format.h>
#include <memory>

#include "core/error.hpp"
#include "options/foreign.hpp"
#include "options/inputs.hpp"
#include "options/plan_for_ranks.hpp"
#include "output/progress.hpp"
#include "program/plan_file/plan_file.hpp"
#include "reports/failures/failure_report.hpp"
#include "reports/scaling/communication_report.hpp"

namespace meshplan::cli {

void add_simulate_request(Command& command, SimulateRequest& request) {
  command
      .positional("plan", request.file,
                  "plan file, or another stack's launch script; or describe the plan with the "
                  "flags below")
      .is_path()
      .takes_json();
  add_workload_options(command, request.plan);
  add_parallel_options(command, request.plan);
  command.group("With a plan file");
  add_foreign_options(command, request.plan.foreign);
  command.group("How it is simulated")
      .option("--memory-reserve", request.memory_reserve, kMemoryReserveHelp)
      .option("--adjusted", request.adjusted, kAdjustedHelp)
      .is_path()
      .takes_json()
      .flag("--memory-timeline", request.memory_timeline,
            "show what each stage's memory holds over the step, and when most")
      .flag("--communication", request.communication,
            "show messages, bytes and exposed time by link, group and operation")
      .flag("--all-ranks", request.all_ranks, "play every rank, not one per stage")
      .flag("--estimate", request.estimate,
            "answer at once with the closed form that a search uses, without playing the step");
  command.group("What saving costs (docs/checkpoints.md)");
  add_saving_options(command, request.saving);
  add_failure_play_options(command, request.play);
  add_failure_options(command, request.failures,
                      fmt::format("{}; default: that of Llama 3's training, 50700h", kMtbfHelp));
}

namespace {

/// Absent where the options ask for no saving.
std::optional<planner::SavingIntervals> saving_of(const SimulateRequest& request) {
  if (!request.saving.checkpoint_every && !request.saving.memory_every) return std::nullopt;
  planner::SavingIntervals intervals = saving_intervals(request.saving, request.failures.mtbf);
  intervals.storage_gb_per_s = request.failures.storage_gb_per_s;
  return intervals;
}

/// @throws ConfigError for options of saving, which is predicted from programs of our own software
/// and for single steps
void refuse_saving(const SimulateRequest& request, void (*refuse)(const std::string& flag)) {
  if (request.saving.checkpoint_every) refuse("--checkpoint-every");
  if (request.saving.memory_every) refuse("--memory-every");
}

/// Options of failures that saving reads, too.
std::vector<std::string> read_by_saving(const SavingOptions& saving) {
  std::vector<std::string> flags;
  if (saving.is_auto()) flags.emplace_back("--mtbf");
  if (saving.checkpoint_every) flags.emplace_back("--storage-bandwidth");
  return flags;
}

}  // namespace

PlanOnCluster load(const SimulateRequest& request) {
  refuse_without_failures(request.play, request.failures, read_by_saving(request.saving));
  saving_of(request);  // what it cannot mean is said before anything is simulated
  PlanOnCluster loaded =
      request.file ? plan_of_file(*request.file, request.plan) : plan_of_flags(request.plan);
  loaded.adjustment = load_adjustment(request.adjusted);
  if (loaded.adjustment)
    require_adjustable(*loaded.adjustment, loaded.plan, loaded.cluster,
                       input_name(*request.adjusted, "adjustment"));
  return loaded;
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
       .communication = request.communication,
       .memory_reserve = memory_reserve(request.memory_reserve),
       .saving = saving_of(request)});
}

program::Plan with_prediction(const PlanOnCluster& loaded, program::Prediction prediction) {
  program::Plan plan = loaded.plan;
  plan.prediction = std::move(prediction);
  return program::parse_plan(plan_file_text(std::move(plan), loaded.cluster), "the simulated plan");
}

program::Plan simulated_plan(const reports::SimulationReport& report, const PlanOnCluster& loaded) {
  return with_prediction(loaded, {.step_time_s = report.simulation.step_time_s,
                                  .peak_memory_bytes = report.simulation.memory.peak_bytes,
                                  .mfu = report.mfu,
                                  .reasons = {"simulated as given"}});
}

void refuse_beside_file(const Command& command, const SimulateRequest& request) {
  if (request.file)
    refuse_beside_file(command, input_name(*request.file, "plan"),
                       is_foreign(*request.file, request.plan.foreign));
}

void refuse_operations(const std::string& flag) {
  throw ConfigError(
      fmt::format("{}: needs every operation, which is known of --software {} only; leave it out",
                  flag, sim::kOwnSoftware));
}

void refuse_beside_estimate(const std::string& flag) {
  throw ConfigError(fmt::format(
      "{}: needs the step played, which --estimate does not; leave one of them out", flag));
}

void refuse_beside_failures(const std::string& flag) {
  throw ConfigError(fmt::format(
      "{}: is of a single step, and --failures plays months; leave one of them out", flag));
}

reports::SoftwareReport simulate_other_software(const SimulateRequest& request,
                                                const PlanOnCluster& loaded) {
  if (request.estimate)
    throw ConfigError(
        fmt::format("--estimate: runs of {} are predicted in closed form in any case; leave it out",
                    loaded.plan.stack.software));
  if (request.memory_timeline) refuse_operations("--memory-timeline");
  if (request.all_ranks) refuse_operations("--all-ranks");
  if (request.communication) refuse_operations("--communication");
  refuse_saving(request, refuse_operations);
  return reports::software_report(loaded.plan, loaded.cluster,
                                  memory_reserve(request.memory_reserve), loaded.adjustment.get(),
                                  stack_refusals(loaded.source, loaded.plan));
}

reports::EstimateReport estimate(const SimulateRequest& request, const PlanOnCluster& loaded) {
  for (const auto& [given, flag] : {std::pair{request.memory_timeline, "--memory-timeline"},
                                    {request.all_ranks, "--all-ranks"},
                                    {request.communication, "--communication"}})
    if (given) refuse_beside_estimate(flag);
  return reports::estimate_report(loaded.plan, loaded.cluster,
                                  memory_reserve(request.memory_reserve), saving_of(request));
}

planner::FailureStudy failure_study(const SimulateRequest& request, const PlanOnCluster& loaded,
                                    const Terminal& terminal) {
  for (const auto& [given, flag] : {std::pair{request.memory_timeline, "--memory-timeline"},
                                    {request.all_ranks, "--all-ranks"},
                                    {request.communication, "--communication"}})
    if (given) refuse_beside_failures(flag);
  refuse_saving(request, refuse_beside_failures);
  const planner::FailureAssumptions assumptions = failure_assumptions(request.failures);
  const planner::PlayOptions play = play_options(request.play);
  const double step_time_s =
      !loaded.of_own_software() ? simulate_other_software(request, loaded).step.step_time_s
      : request.estimate        ? estimate(request, loaded).step.step_time_s
                         : simulate(request, loaded, false, false, terminal).simulation.step_time_s;
  return planner::study_failures(loaded.plan, loaded.cluster, step_time_s, assumptions, play);
}

std::string report_json(const SimulateRequest& request, const reports::SimulationReport& report) {
  return request.communication ? reports::json_with_communication(report)
                               : reports::to_json(report);
}

std::string simulation_json(const SimulateRequest& request, const PlanOnCluster& loaded,
                            const Terminal& terminal) {
  if (request.play.failures) return reports::to_json(failure_study(request, loaded, terminal));
  if (!loaded.of_own_software()) return reports::to_json(simulate_other_software(request, loaded));
  if (request.estimate) return reports::to_json(estimate(request, loaded));
  return report_json(request, simulate(request, loaded, false, false, terminal));
}

Question simulate_question() {
  const auto request = std::make_shared<SimulateRequest>();
  return {.name = "simulate",
          .summary = kSimulateSummary,
          .declare = [request](Command& command) { add_simulate_request(command, *request); },
          .answer =
              [request](const Command& command) {
                refuse_beside_file(command, *request);
                return simulation_json(*request, load(*request), kSilent);
              }};
}

}  // namespace meshplan::cli
