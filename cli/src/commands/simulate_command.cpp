// meshplan simulate: what one plan costs, operation by operation.
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "options/inputs.hpp"
#include "options/plan_options.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "program/checks/check.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plan_file/plan_settings.hpp"
#include "program/trace/program_json.hpp"
#include "reports/memory_timeline_report.hpp"
#include "reports/search_report.hpp"
#include "reports/simulation_report.hpp"
#include "reports/software_report.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  std::optional<std::string> file;
  PlanOptions plan;
  std::vector<std::string> set;
  std::optional<std::string> trace;
  std::optional<std::string> chrome;
  std::optional<std::string> out;
  std::optional<std::string> program;
  int stage = 0;
  std::optional<double> memory_reserve;
  bool all_ranks = false;
  bool explain = false;
  bool memory_timeline = false;
  std::optional<std::string> memory_svg;
  bool json = false;
};

struct PlanOnCluster {
  program::Plan plan;
  sim::Cluster cluster;
  std::vector<std::string> assumptions;
  std::vector<std::string> changes;  // of the file
};

/// @throws ConfigError for a plan that the software cannot be asked for
void require_expressible(const program::Plan& plan, const std::string& software,
                         const std::string& file) {
  for (const program::Violation& violation :
       sim::software_violations(plan, sim::load_execution_profile(software)))
    throw ConfigError(fmt::format("{}: {}", file, violation.message));
}

PlanOnCluster from_file(const Options& options) {
  const std::string& file = *options.file;
  PlanOnCluster loaded;
  std::string text = read_file(file);
  if (!options.set.empty()) {
    program::ChangedPlan changed = program::change_plan(text, file, options.set);
    text = std::move(changed.text);
    loaded.changes = std::move(changed.changes);
  }
  loaded.plan = program::parse_plan(text, file);
  if (options.plan.expert_imbalance) {
    loaded.plan.expected_expert_imbalance =
        expected_expert_imbalance(*options.plan.expert_imbalance, loaded.plan.model);
    for (const program::Violation& violation : program::check(loaded.plan))
      throw ConfigError(fmt::format("{}: --expert-imbalance {}: {}", file,
                                    *options.plan.expert_imbalance, violation.message));
  }
  freeze(loaded.plan, options.plan.freeze, file);
  require_expressible(loaded.plan, options.plan.software, file);
  const int ranks = loaded.plan.parallel.world_size();
  if (options.plan.cluster)
    loaded.cluster = sim::with_ranks(load_cluster(*options.plan.cluster), ranks);
  else
    loaded.cluster = cluster_of(loaded.plan, file);
  if (loaded.cluster.num_ranks() != ranks)
    throw ConfigError(
        fmt::format("{}: parallel: the plan has {} ranks ({}), but its cluster has {}", file, ranks,
                    program::to_string(loaded.plan.parallel), loaded.cluster.num_ranks()));
  return loaded;
}

// Without --gpus, exactly the ranks that the degrees ask for.
PlanOnCluster from_flags(Options options) {
  if (!options.set.empty())
    throw ConfigError(
        fmt::format("--set {}: changes a plan's file, and none is given: say the same with a flag",
                    options.set.front()));
  read_schedule_file(options.plan);
  const planner::Constraints& pins = options.plan.constraints;
  if (!options.plan.ranks)
    options.plan.ranks = program::Mesh({.tp = pins.tp.value_or(1),
                                        .cp = pins.cp.value_or(1),
                                        .pp = pins.pp.value_or(1),
                                        .dp = pins.dp.value_or(1)})
                             .world_size();
  ResolvedRequest resolved = resolve(options.plan);
  return {.plan = single_plan(resolved),
          .cluster = std::move(resolved.request.cluster),
          .assumptions = std::move(resolved.assumptions)};
}

/// The plan as a file holds it: with its cluster, that cluster's hash, and this prediction.
program::Plan with_prediction(const PlanOnCluster& loaded, program::Prediction prediction) {
  program::Plan plan = loaded.plan;
  plan.cluster_name = loaded.cluster.name;
  plan.cluster_json = sim::to_json(loaded.cluster);
  plan.cluster_hash.clear();
  plan.prediction = std::move(prediction);
  return program::parse_plan(program::to_json(plan), "the simulated plan");
}

/// What was filled in for flags, and what --set changed.
void output_origin(const PlanOnCluster& loaded) {
  for (const std::string& assumption : loaded.assumptions) output("assumed  {}\n", assumption);
  for (const std::string& change : loaded.changes) output("set      {}\n", change);
}

/// With each rank's memory as a counter.
std::string chrome_trace(const reports::SimulationReport& report) {
  std::vector<program::CounterTrack> memory;
  for (const sim::MemoryTimeline& timeline : report.memory_timelines)
    memory.push_back(sim::counter_track(timeline));
  return program::to_chrome_trace(report.simulation.trace, memory);
}

std::vector<double> capacity_of_stages(const sim::MemoryReport& memory) {
  std::vector<double> capacity;
  for (const sim::StageMemory& stage : memory.stages) capacity.push_back(stage.capacity);
  return capacity;
}

std::string memory_title(const reports::SimulationReport& report) {
  return fmt::format("{} on {}, {}: memory over a step", report.plan.model.name,
                     report.cluster.name, planner::describe(planner::candidate_of(report.plan)));
}

/// Options that show single operations are refused: they are known of our own software only.
void refuse_operations(const Options& options) {
  for (const auto& [given, flag] : {std::pair{options.trace.has_value(), "--trace"},
                                    {options.chrome.has_value(), "--chrome"},
                                    {options.program.has_value(), "--program"},
                                    {options.memory_svg.has_value(), "--memory-svg"},
                                    {options.memory_timeline, "--memory-timeline"},
                                    {options.all_ranks, "--all-ranks"}})
    if (given)
      throw ConfigError(fmt::format(
          "{}: needs every operation, which is known of --software {} only; leave it out", flag,
          sim::kOwnSoftware));
}

int run_other_software(const Options& options, const PlanOnCluster& loaded) {
  refuse_operations(options);
  const reports::SoftwareReport report = reports::software_report(
      loaded.plan, loaded.cluster, options.plan.software, memory_reserve(options.memory_reserve));
  if (options.out)
    write_file(*options.out,
               program::to_json(with_prediction(
                   loaded, {.step_time_s = report.step.step_time_s,
                            .peak_memory_bytes = report.step.peak_memory_bytes,
                            .mfu = report.step.mfu,
                            .reasons = {"predicted as a run of " + options.plan.software}})));
  if (options.json) {
    output("{}", reports::to_json(report));
  } else {
    output_origin(loaded);
    output("{}", reports::to_text(report));
    if (options.explain) output("\n{}", reports::explain_text(report));
  }
  return report.prediction.memory.fits() ? kDone : kInfeasible;
}

int run(const Options& options, const Terminal& terminal) {
  require_writable(
      {options.trace, options.chrome, options.out, options.program, options.memory_svg});
  const PlanOnCluster loaded = options.file ? from_file(options) : from_flags(options);
  if (options.plan.software != sim::kOwnSoftware) return run_other_software(options, loaded);
  const bool memory_timelines = options.memory_timeline || options.memory_svg || options.chrome;
  reports::SimulationReport report = [&] {
    const ElapsedTime elapsed("simulating", terminal);
    return reports::simulation_report(
        loaded.plan, loaded.cluster,
        {.simulation = {.fold = !options.all_ranks,
                        .record_spans = options.trace || options.chrome || memory_timelines},
         .memory_timelines = memory_timelines,
         .memory_reserve = memory_reserve(options.memory_reserve)});
  }();
  report.simulation.trace.plan =
      with_prediction(loaded, {.step_time_s = report.simulation.step_time_s,
                               .peak_memory_bytes = report.simulation.memory.peak_bytes,
                               .mfu = report.mfu,
                               .reasons = {"simulated as given"}});
  if (options.trace) write_file(*options.trace, program::to_json(report.simulation.trace));
  if (options.chrome) write_file(*options.chrome, chrome_trace(report));
  if (options.memory_svg)
    write_file(*options.memory_svg,
               reports::to_svg(report.memory_timelines,
                               capacity_of_stages(report.simulation.memory), memory_title(report)));
  if (options.program) {
    if (options.stage < 0 || options.stage >= loaded.plan.parallel.pp)
      throw ConfigError(fmt::format("--stage {}: the plan has stages 0 to {}", options.stage,
                                    loaded.plan.parallel.pp - 1));
    write_file(*options.program, program::to_json(program::lower(loaded.plan, options.stage)));
  }
  if (options.out) write_file(*options.out, program::to_json(report.simulation.trace.plan));
  if (options.json) {
    if (!options.memory_timeline) report.memory_timelines.clear();
    output("{}", reports::to_json(report));
  } else {
    output_origin(loaded);
    output("{}", reports::to_text(report));
    if (options.memory_timeline) output("\n{}", reports::to_text(report.memory_timelines));
    if (options.explain) output("\n{}", reports::explain_text(report));
  }
  return report.simulation.memory.fits() ? kDone : kInfeasible;
}

}  // namespace

void add_simulate_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Command command = line.add("simulate", "Predict step time, its breakdown and memory of one plan");
  command.positional("plan", options->file, "plan file; or describe the plan with the flags below");
  add_workload_options(command, options->plan);
  add_parallel_options(command, options->plan);
  command.group("With a plan file")
      .option("--set", options->set,
              "PATH=VALUE changes a value of the file, for example parallel.tp=4; may be repeated");
  command.group("What it writes")
      .option("--trace", options->trace, "write the trace of the last step (meshplan's schema)")
      .option("--chrome", options->chrome,
              "write it, with counters of memory, for chrome://tracing or ui.perfetto.dev")
      .option("--memory-svg", options->memory_svg, "draw each stage's memory over the step")
      .option("-o,--out", options->out, "write the plan with this prediction")
      .option("--program", options->program,
              "write what a rank of --stage does, operation by operation")
      .option("--stage", options->stage, "stage whose program is written")
      .flag("--explain", options->explain,
            "say how well each term is known, from what, and what to measure")
      .flag("--memory-timeline", options->memory_timeline,
            "show what each stage's memory holds over the step, and when most")
      .option("--memory-reserve", options->memory_reserve, kMemoryReserveHelp)
      .flag("--all-ranks", options->all_ranks, "play every rank, not one per stage")
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan simulate plan.json --chrome trace.json\n"
          "  meshplan simulate plan.json --memory-timeline --memory-svg memory.svg\n"
          "  meshplan simulate plan.json --set recompute.kind=full --set micro_batch_size=2\n"
          "  meshplan simulate --model llama3-8b --cluster dgx-h100 --tp 2 --pp 2 --dp 2 \\\n"
          "      --global-batch 64\n"
          "Exit code 3: the plan does not fit into memory (the report is printed all the same).")
      .on_run([options, command, terminal = line.terminal()] {
        if (options->file) refuse_beside_file(command, *options->file);
        return run(*options, terminal);
      });
}

}  // namespace meshplan::cli
