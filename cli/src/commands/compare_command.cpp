// meshplan compare: predicted beside measured, or one plan's step beside another's.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/units.hpp"
#include "options/foreign.hpp"
#include "options/plan_input.hpp"
#include "output/other_unit.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "output/timeline.hpp"
#include "planner/explain/comparison.hpp"
#include "planner/runs/training_log.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/gzip.hpp"
#include "program/trace/chrome_trace.hpp"
#include "program/trace/trace_blocks.hpp"
#include "reports/comparison.hpp"
#include "reports/explain/waterfall_report.hpp"
#include "requests/predicted_saves.hpp"
#include "requests/simulate_request.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/run_prediction.hpp"
#include "sim/stacks/software.hpp"
#include "sim/stacks/stack_memory.hpp"

namespace meshplan::cli {
namespace {

struct CompareOptions {
  std::optional<std::string> predicted;
  std::optional<std::string> measured;
  PlanOptions plan;
  std::optional<double> step_time_s;
  int rank = 0;
  int operations = 12;
  std::optional<std::string> chrome;
  bool timeline = false;
  bool json = false;
};

enum class InputKind { Plan, Trace, Kineto, Log };

struct Input {
  std::string file;
  InputKind kind = InputKind::Log;
};

/// The keys in a text that tell traces apart, and how it begins.
struct TextSigns {
  std::string begin;  // after blanks
  bool events = false;
  bool spans = false;
};

TextSigns signs_of(const TextBlocks& text) {
  constexpr std::string_view kEvents = "\"traceEvents\"", kSpans = "\"spans\"", kBlanks = " \t\r\n";
  constexpr std::size_t kBeginBytes = 16;
  TextSigns signs;
  std::string seen;  // with the end of the block before: a key may lie in both
  for (std::string_view block = text(); !block.empty() && !signs.events; block = text()) {
    const auto first = signs.begin.empty() ? block.find_first_not_of(kBlanks) : 0;
    if (signs.begin.size() < kBeginBytes && first != std::string_view::npos)
      signs.begin += block.substr(first, kBeginBytes - signs.begin.size());
    if (!signs.begin.empty() && signs.begin.front() != '{' && signs.begin.front() != '[') break;
    seen.erase(0, seen.size() - std::min(seen.size(), kEvents.size() - 1));
    seen += block;
    signs.events = seen.find(kEvents) != std::string::npos;
    signs.spans = signs.spans || seen.find(kSpans) != std::string::npos;
  }
  return signs;
}

/// By what its text holds.
InputKind kind_of(const std::string& file) {
  const TextSigns signs = signs_of(unpacked_blocks(file));
  const char first = signs.begin.empty() ? '\0' : signs.begin.front();
  if (first != '{' && first != '[') {
    std::error_code ignored;
    const bool is_read_whole = std::filesystem::is_fifo(file, ignored) ||
                               std::filesystem::file_size(file, ignored) <= kMostTextBytes;
    return is_read_whole && is_foreign(file, {}) ? InputKind::Plan : InputKind::Log;
  }
  if (signs.events) return InputKind::Kineto;
  if (signs.spans) return InputKind::Trace;
  return first == '[' || signs.begin.starts_with("{\"kind\"") ? InputKind::Log : InputKind::Plan;
}

Input read(const std::string& file) {
  return {.file = file, .kind = kind_of(file)};
}

/// What is compared with: a trace, or a plan that is still to be simulated.
struct Predicted {
  std::optional<program::Trace> trace;
  std::optional<PlanOnCluster> plan;
  const program::Plan& planned() const { return trace ? trace->plan : plan->plan; }
};

Predicted read_predicted(const CompareOptions& options, const Input& input) {
  if (input.kind == InputKind::Trace)
    return {.trace = program::parse_trace(unpacked_blocks(input.file), input.file), .plan = {}};
  if (input.kind == InputKind::Plan)
    return {.trace = {}, .plan = plan_of_file(input.file, options.plan)};
  throw ConfigError(fmt::format(
      "{}: expected a predicted trace or a plan; what was measured comes second: meshplan compare "
      "plan.json {}",
      input.file, input.file));
}

/// A measurement, and what a log says of memory beside it.
struct Measurement : planner::MeasuredRun {
  sim::ShownMemory memory;
  std::optional<program::SavingReport> saving;
};

Measurement read_measured(const CompareOptions& options, const std::optional<Input>& input,
                          const program::Plan& plan) {
  Measurement run;
  run.trace = {.measured = true, .plan = plan, .world_size = plan.parallel.world_size()};
  if (!input) {
    if (!(*options.step_time_s > 0 && *options.step_time_s <= limits::kSeconds))
      throw ConfigError(fmt::format("--step-time {}: expected seconds, above 0 and up to {:g}",
                                    *options.step_time_s, limits::kSeconds));
    run.trace.step_times_s = {*options.step_time_s};
  } else if (input->kind == InputKind::Trace) {
    run.trace = program::parse_trace(unpacked_blocks(input->file), input->file);
  } else if (input->kind == InputKind::Kineto) {
    run = {planner::match_kernels(
               planner::parse_kineto_trace(unpacked_blocks(input->file), input->file), input->file,
               plan, options.rank),
           {},
           {}};
  } else {
    planner::LoggedRun logged =
        planner::parse_training_log(unpacked_blocks(input->file), input->file, plan);
    output(stderr, "{}: {} of {} lines are steps of {}, the first is line {}\n", input->file,
           logged.step_lines, logged.step_lines + logged.other_lines, logged.format,
           logged.first_line);
    run.trace.step_times_s = std::move(logged.step_times_s);
    run.saving = logged.saving;
    run.memory = {.allocated_bytes = logged.allocated_bytes,
                  .reserved_bytes = logged.reserved_bytes};
  }
  return run;
}

/// Peaks that the log states beside those that are predicted of the plan's stack.
std::vector<reports::AllocatorPeak> allocator_peaks(const sim::ShownMemory& measured,
                                                    const PlanOnCluster& plan) {
  if (plan.of_own_software()) return {};
  const sim::PreparedRun run(sim::run_of(plan.plan, plan.cluster.name),
                             sim::data_sheet_of(plan.cluster));
  const sim::ShownMemory predicted =
      sim::shown_memory(run.predict(sim::constants_of(sim::fitted_constants())).memory);
  std::vector<reports::AllocatorPeak> peaks;
  if (measured.allocated_bytes > 0)
    peaks.push_back({"allocated", predicted.allocated_bytes, measured.allocated_bytes});
  if (measured.reserved_bytes > 0)
    peaks.push_back({"reserved", predicted.reserved_bytes, measured.reserved_bytes});
  return peaks;
}

program::Trace simulated(const PlanOnCluster& plan) {
  reports::SimulationReport report =
      reports::simulation_report(plan.plan, plan.cluster, {.simulation = {.record_spans = true}});
  report.simulation.trace.plan = simulated_plan(report, plan);
  return std::move(report.simulation.trace);
}

void write_chrome(const CompareOptions& options, const std::optional<program::Trace>& predicted,
                  const program::Trace& measured) {
  if (!options.chrome) return;
  if (!predicted || measured.spans.empty())
    throw ConfigError(fmt::format(
        "--chrome {}: needs the operations of both, and {} has none", *options.chrome,
        measured.spans.empty() ? "the measurement" : "the prediction of other software"));
  write_packed_file(*options.chrome, program::to_chrome_trace(*predicted, measured));
}

int compare_with_measured(const CompareOptions& options, const Input& first,
                          const std::optional<Input>& second, const Terminal& terminal) {
  Predicted predicted = read_predicted(options, first);
  Measurement measured = read_measured(options, second, predicted.planned());
  const bool own = !predicted.plan || predicted.plan->of_own_software();
  reports::Comparison comparison = [&] {
    const ElapsedTime elapsed("simulating", terminal);
    if (!predicted.trace && own && !measured.trace.spans.empty())
      predicted.trace = simulated(*predicted.plan);
    if (predicted.trace) return reports::compare(*predicted.trace, measured);
    const PlanOnCluster& plan = *predicted.plan;
    return reports::compare(planner::price(plan.plan, plan.cluster), measured);
  }();
  if (predicted.plan) comparison.allocator = allocator_peaks(measured.memory, *predicted.plan);
  if (predicted.plan && own && measured.saving) {
    add(predicted_saves(predicted.plan->plan, predicted.plan->cluster), *measured.saving);
    comparison.saving = *measured.saving;
  }
  write_chrome(options, predicted.trace, measured.trace);
  const std::string origin = predicted.plan ? origin_text(*predicted.plan) : "";
  if (options.step_time_s) note_other_unit(*options.step_time_s, comparison.predicted.median_s);
  if (options.json)
    output("{}", reports::to_json(comparison));
  else
    output("{}{}", origin, reports::to_text(comparison, options.operations));
  if (options.timeline && !options.json) {
    if (predicted.trace) print_timeline(*predicted.trace, terminal);
    if (!measured.trace.spans.empty()) print_timeline(measured.trace, terminal);
  }
  return kDone;
}

int compare_plans(const CompareOptions& options, const Terminal& terminal) {
  const PlanOnCluster a = plan_of_file(*options.predicted, options.plan);
  const PlanOnCluster b = plan_of_file(*options.measured, options.plan);
  const planner::ComparedPlans compared = [&] {
    const ElapsedTime elapsed("simulating", terminal);
    return planner::compare(planner::price(a.plan, a.cluster), planner::price(b.plan, b.cluster),
                            a.cluster == b.cluster && a.plan.stack == b.plan.stack);
  }();
  if (options.json)
    output("{}", reports::waterfall_json(compared));
  else
    output("{}{}", origin_text(a), reports::waterfall_text(compared));
  return kDone;
}

int run(const CompareOptions& options, const Terminal& terminal) {
  if (!options.predicted || options.measured.has_value() == options.step_time_s.has_value())
    throw ConfigError(
        "compare needs a prediction and a measurement, or two plans: meshplan compare "
        "predicted.json measured.json, compare plan.json train.log, compare plan.json "
        "--step-time 14.66, compare a.json b.json");
  require_writable({options.chrome});
  const Input first = read(*options.predicted);
  std::optional<Input> second;
  if (options.measured) second = read(*options.measured);
  if (!second || second->kind != InputKind::Plan)
    return compare_with_measured(options, first, second, terminal);
  if (first.kind == InputKind::Plan && !options.chrome) return compare_plans(options, terminal);
  throw ConfigError(fmt::format("{}: a plan, expected what was measured{}", second->file,
                                options.chrome ? ", which --chrome shows" : ""));
}

}  // namespace

void add_compare_command(CommandLine& line) {
  const auto options = std::make_shared<CompareOptions>();
  Command command = line.add(
      "compare", "Lay a measurement beside a prediction, or one plan's step beside another's");
  command
      .positional("predicted", options->predicted,
                  "a plan, or a trace written by meshplan simulate")
      .is_path()
      .positional("measured", options->measured,
                  "a trace written by meshplan run, a trace of PyTorch's profiler (.json, "
                  ".json.gz), a training log, or another plan")
      .is_path()
      .option("--step-time", options->step_time_s, "the measured step time in seconds, instead");
  add_cluster_options(command, options->plan);
  command.option("--rank", options->rank, "rank of a profiler's trace that does not say its own")
      .option("--operations", options->operations, "rows of the table of operations")
      .option("--chrome", options->chrome,
              "write both for ui.perfetto.dev, the measured ranks below the predicted ones (packed "
              "if it ends in .gz)")
      .is_path()
      .flag("--timeline", options->timeline, "draw both steps with letters, a row a stage")
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan simulate plan.json --trace predicted.json\n"
          "  meshplan run plan.json --steps 20 --trace measured.json\n"
          "  meshplan compare predicted.json measured.json --chrome both.json.gz\n"
          "  meshplan compare plan.json rank-0.pt.trace.json.gz --software megatron-core\n"
          "  meshplan compare plan.json train.log       # Megatron-LM, torchtitan, nanotron, ...\n"
          "  meshplan compare plan.json --step-time 14.66\n"
          "  meshplan compare a.json b.json             # from one step time to the other, by "
          "terms")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
