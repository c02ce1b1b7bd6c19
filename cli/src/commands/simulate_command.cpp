// meshplan simulate: what one plan costs, operation by operation.
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "output/kineto_folder.hpp"
#include "output/output.hpp"
#include "output/timeline.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/folders.hpp"
#include "process/gzip.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/chrome_trace.hpp"
#include "program/trace/program_json.hpp"
#include "reports/failures/failure_report.hpp"
#include "reports/memory_timeline_report.hpp"
#include "reports/scaling/communication_report.hpp"
#include "reports/search_report.hpp"
#include "reports/simulation_report.hpp"
#include "reports/software_report.hpp"
#include "requests/simulate_request.hpp"

namespace meshplan::cli {
namespace {

struct SimulateOptions {
  SimulateRequest request;
  std::optional<std::string> trace;
  std::optional<std::string> chrome;
  std::optional<std::string> kineto;
  std::optional<std::string> out;
  std::optional<std::string> program;
  int stage = 0;
  bool explain = false;
  bool timeline = false;
  std::optional<std::string> memory_svg;
  bool json = false;
  bool schema = false;
};

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

/// Refuses what shows single operations.
void refuse_files_of_operations(const SimulateOptions& options,
                                void (*refuse)(const std::string& flag)) {
  for (const auto& [given, flag] : {std::pair{options.trace.has_value(), "--trace"},
                                    {options.chrome.has_value(), "--chrome"},
                                    {options.kineto.has_value(), "--kineto"},
                                    {options.program.has_value(), "--program"},
                                    {options.memory_svg.has_value(), "--memory-svg"},
                                    {options.timeline, "--timeline"}})
    if (given) refuse(flag);
}

int run_other_software(const SimulateOptions& options, const PlanOnCluster& loaded) {
  refuse_files_of_operations(options, refuse_operations);  // known of our own software only
  const reports::SoftwareReport report = simulate_other_software(options.request, loaded);
  if (options.out)
    write_file(*options.out,
               program::to_json(with_prediction(
                   loaded, {.step_time_s = report.step.step_time_s,
                            .peak_memory_bytes = report.step.peak_memory_bytes,
                            .mfu = report.step.mfu,
                            .reasons = {"predicted as a run of " + loaded.plan.stack.software}})));
  if (options.json) {
    output("{}", reports::to_json(report));
  } else {
    output("{}", origin_text(loaded));
    output("{}", reports::to_text(report));
    if (options.explain) output("\n{}", reports::explain_text(report));
  }
  return report.prediction.memory.fits() ? kDone : kInfeasible;
}

int run_estimate(const SimulateOptions& options, const PlanOnCluster& loaded) {
  refuse_files_of_operations(options, refuse_beside_estimate);
  if (options.out) refuse_beside_estimate("--out");
  if (options.explain) refuse_beside_estimate("--explain");
  const reports::EstimateReport report = estimate(options.request, loaded);
  if (options.json)
    output("{}", reports::to_json(report));
  else
    output("{}{}", origin_text(loaded), reports::to_text(report));
  return report.step.fits() ? kDone : kInfeasible;
}

int run_failures(const SimulateOptions& options, const PlanOnCluster& loaded,
                 const Terminal& terminal) {
  refuse_files_of_operations(options, refuse_beside_failures);
  if (options.out) refuse_beside_failures("--out");
  if (options.explain) refuse_beside_failures("--explain");
  const planner::FailureStudy study = failure_study(options.request, loaded, terminal);
  if (options.json)
    output("{}", reports::to_json(study));
  else
    output("{}{}", origin_text(loaded), reports::to_text(study));
  return kDone;
}

int run(const SimulateOptions& options, const Terminal& terminal) {
  if (options.schema) {
    output("{}", reports::failure_study_schema());
    return kDone;
  }
  require_writable(
      {options.trace, options.chrome, options.out, options.program, options.memory_svg});
  if (options.kineto) require_free_folder(*options.kineto, false);
  const PlanOnCluster loaded = load(options.request);
  for (const std::string& note : loaded.notes) output(stderr, "{}\n", printable_line(note));
  if (options.request.play.failures) return run_failures(options, loaded, terminal);
  if (!loaded.of_own_software()) return run_other_software(options, loaded);
  if (options.request.estimate) return run_estimate(options, loaded);
  const bool memory_timelines = options.memory_svg || options.chrome;
  reports::SimulationReport report =
      simulate(options.request, loaded,
               options.trace || options.chrome || options.kineto || options.timeline,
               memory_timelines, terminal);
  report.simulation.trace.plan = simulated_plan(report, loaded);
  if (options.trace) write_packed_file(*options.trace, program::to_json(report.simulation.trace));
  if (options.chrome) write_packed_file(*options.chrome, chrome_trace(report));
  if (options.kineto) write_kineto_folder(*options.kineto, report.simulation.trace);
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
    if (!options.request.memory_timeline) report.memory_timelines.clear();
    output("{}", report_json(options.request, report));
  } else {
    output("{}", origin_text(loaded));
    output("{}", reports::to_text(report));
    if (options.request.communication) output("{}", reports::communication_text(report));
    if (options.request.memory_timeline) output("\n{}", reports::to_text(report.memory_timelines));
    if (options.timeline) print_timeline(report.simulation.trace, terminal);
    if (options.explain) output("\n{}", reports::explain_text(report));
  }
  return report.simulation.memory.fits() ? kDone : kInfeasible;
}

}  // namespace

void add_simulate_command(CommandLine& line) {
  const auto options = std::make_shared<SimulateOptions>();
  Command command = line.add("simulate", kSimulateSummary);
  add_simulate_request(command, options->request);
  command.group("What it writes")
      .option("--trace", options->trace,
              "write the trace of the last step (meshplan's schema), packed if it ends in .gz")
      .is_path()
      .option("--chrome", options->chrome,
              "write it, with counters of memory, for ui.perfetto.dev, packed if it ends in .gz")
      .is_path()
      .option("--kineto", options->kineto, kKinetoHelp)
      .is_path()
      .option("--memory-svg", options->memory_svg, "draw each stage's memory over the step")
      .is_path()
      .option("-o,--out", options->out, "write the plan with this prediction")
      .is_path()
      .option("--program", options->program,
              "write what a rank of --stage does, operation by operation")
      .is_path()
      .option("--stage", options->stage, "stage whose program is written")
      .flag("--timeline", options->timeline,
            "draw the step with letters: a row a stage, a column a slice of time")
      .flag("--explain", options->explain,
            "say how well each term is known, from what, and what to measure")
      .flag("--json", options->json, "print the result for programs")
      .flag("--schema", options->schema, "print the JSON Schema of what --failures --json prints")
      .examples(
          "  meshplan simulate plan.json --chrome trace.json.gz\n"
          "  meshplan simulate plan.json --timeline\n"
          "  meshplan simulate plan.json --memory-timeline --memory-svg memory.svg\n"
          "  meshplan simulate plan.json --communication\n"
          "  meshplan simulate plan.json --estimate\n"
          "  meshplan simulate plan.json --checkpoint-every 100 --memory-every 1\n"
          "  meshplan simulate plan.json --failures --mtbf 50000h --spare-nodes 2\n"
          "  meshplan simulate plan.json --set recompute.kind=full --set micro_batch_size=2\n"
          "  meshplan simulate plan.json --set network=0.5 --set device.memory_gib=141\n"
          "  meshplan simulate --model llama3-8b --cluster dgx-h100 --tp 2 --pp 2 --dp 2 \\\n"
          "      --global-batch 64\n"
          "  meshplan simulate run.sh --cluster dgx-h100\n"
          "A launch script of Megatron-LM is read, never run (meshplan import).\n"
          "Exit code 3: the plan does not fit into memory (the report is printed all the same).")
      .on_run([options, command, terminal = line.terminal()] {
        refuse_beside_file(command, options->request);
        return run(*options, terminal);
      });
}

}  // namespace meshplan::cli
