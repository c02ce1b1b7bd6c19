#include "commands/lesson/lesson_command.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <variant>

#include "commands/lesson/lessons.hpp"
#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "options/inputs.hpp"
#include "options/plan_input.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/gzip.hpp"
#include "process/temporary_folder.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/trace_blocks.hpp"
#include "ranks/timed_run.hpp"
#include "ranks/trial_runs.hpp"
#include "reports/lesson_report.hpp"
#include "reports/table.hpp"
#include "requests/question.hpp"
#include "requests/simulate_request.hpp"
#include "runtime/train/preflight.hpp"
#include "tune/first_calibration.hpp"

namespace meshplan::cli {
namespace {

const std::vector<std::string> kOnProcessors{"--device", "cpu"};

struct LessonOptions {
  std::optional<std::string> number;
  std::optional<std::string> cluster;
  TrialPolicy policy{
      .data = runtime::kDefaultText, .steps = 5, .least_rounds = 2, .most_rounds = 2, .hosts = {}};
  bool json = false;
  Terminal terminal;
};

/// A run of a lesson, as prepared: its plan in a file, and what is expected of it.
struct PreparedRun {
  TrialPlan trial;
  program::Trace predicted;
};

std::string list_of(const std::vector<Lesson>& all) {
  reports::Table table{.columns = {{"lesson"}, {"about", reports::Align::Left}, {"minutes"}}};
  for (const Lesson& lesson : all)
    table.rows.push_back(
        {std::to_string(lesson.number), lesson.title, std::to_string(lesson.minutes)});
  return reports::to_text(table) +
         "\nmeshplan lesson 1 runs the first; its text and exercises are in the classroom's page "
         "(docs/classroom)\n";
}

const Lesson& chosen(const std::vector<Lesson>& all, const std::string& number) {
  const int last = static_cast<int>(all.size());
  if (const auto wanted = parse_integer(number, 1, last))
    return all[static_cast<std::size_t>(*wanted - 1)];
  throw ConfigError(fmt::format(
      "lesson {}: expected a number from 1 to {}; meshplan lesson lists them", number, last));
}

PlanOptions plan_options_of(const LessonRun& run) {
  PlanOptions options;
  const Question question{.name = "lesson",
                          .summary = "",
                          .declare =
                              [&](Command& command) {
                                add_workload_options(command, options);
                                add_parallel_options(command, options);
                              },
                          .answer = [](const Command& /*command*/) { return std::string(); }};
  ask(question, run.words);
  return options;
}

/// This machine, measured for all runs of the lesson.
std::variant<sim::Cluster, int> cluster_of_lesson(const LessonOptions& options,
                                                  const Lesson& lesson) {
  if (options.cluster) return load_cluster(*options.cluster);
  output(stderr, "no --cluster: calibrating first\n");
  PlanOptions widest = plan_options_of(lesson.runs.front());
  std::set<std::int64_t> micro_batches;
  for (const LessonRun& run : lesson.runs) {
    const PlanOptions own = plan_options_of(run);
    widest.ranks = std::max(widest.ranks, own.ranks);
    widest.global_batch = std::max(widest.global_batch, own.global_batch);
    micro_batches.insert(own.constraints.micro_batch_size.value_or(1));
  }
  DeviceOptions processors;
  processors.device = "cpu";
  const FirstCalibration calibration{.plan = widest,
                                     .device = processors,
                                     .device_flags = kOnProcessors,
                                     .hosts = options.policy.hosts,
                                     .micro_batches = {micro_batches.begin(), micro_batches.end()}};
  return calibrate_first(calibration);
}

/// @param file  for the plan
PreparedRun prepare(const LessonRun& run, const sim::Cluster& cluster, const std::string& file) {
  PlanOptions options = plan_options_of(run);
  options.cluster = sim::to_json(cluster);
  const PlanOnCluster loaded = plan_of_flags(std::move(options));
  reports::SimulationReport report = reports::simulation_report(
      loaded.plan, loaded.cluster, {.simulation = {.record_spans = true}});
  PreparedRun prepared{
      .trial = {.name = run.name, .file = file, .plan = simulated_plan(report, loaded)},
      .predicted = std::move(report.simulation.trace)};
  prepared.predicted.plan = prepared.trial.plan;
  write_file(prepared.trial.file, program::to_json(prepared.trial.plan));
  return prepared;
}

/// Once more, with its operations. @returns the comparison, or the exit code of a job that failed
std::variant<reports::Comparison, int> look_into(const PreparedRun& run, const TrialPolicy& policy,
                                                 TemporaryFolder& folder) {
  const std::string trace_file = folder.file("operations.json");
  const int code = run_timed({.plan_file = run.trial.file,
                              .data = policy.data,
                              .steps = policy.steps,
                              .traced_steps = 2,
                              .trace_file = trace_file,
                              .device_flags = kOnProcessors},
                             run.trial.plan, policy.hosts);
  if (code != kDone) return code;
  return reports::compare(run.predicted,
                          program::parse_trace(unpacked_blocks(trace_file), trace_file));
}

int run_lesson(const LessonOptions& options, const Lesson& lesson) {
  if (!options.json)
    output("Lesson {}: {}\n\n{}\n", lesson.number, lesson.title, reports::paragraph(lesson.about));
  std::fflush(stdout);
  const auto cluster = cluster_of_lesson(options, lesson);
  if (const int* code = std::get_if<int>(&cluster)) return *code;
  TemporaryFolder folder;
  std::vector<PreparedRun> runs;
  std::vector<TrialPlan> plans;
  for (const LessonRun& run : lesson.runs) {
    runs.push_back(prepare(run, std::get<sim::Cluster>(cluster),
                           folder.file(fmt::format("run-{}.json", runs.size()))));
    plans.push_back(runs.back().trial);
  }
  auto trial = run_in_turns(plans, options.policy, folder, options.terminal);
  if (const int* code = std::get_if<int>(&trial)) return *code;
  auto comparison = look_into(runs.back(), options.policy, folder);
  if (const int* code = std::get_if<int>(&comparison)) return *code;
  const reports::LessonReport report{
      .number = lesson.number,
      .title = lesson.title,
      .trial = std::get<reports::Trial>(std::move(trial)),
      .comparison = std::get<reports::Comparison>(std::move(comparison)),
      .look = lesson.look};
  output("{}", options.json ? reports::to_json(report) : reports::to_text(report));
  return kDone;
}

int run(const LessonOptions& options) {
  const std::vector<Lesson> all = lessons();
  if (options.number) return run_lesson(options, chosen(all, *options.number));
  if (options.json) throw ConfigError("--json: of which lesson? for example: meshplan lesson 1");
  output("{}", list_of(all));
  return kDone;
}

}  // namespace

void add_lesson_command(CommandLine& line) {
  const auto options = std::make_shared<LessonOptions>();
  options->terminal = line.terminal();
  Command command =
      line.add("lesson", "Run a lesson of the classroom on this machine, predicted and measured");
  command
      .positional("number", options->number,
                  fmt::format("1 to {}; without it the lessons are listed", lesson_count()))
      .option(
          "--cluster", options->cluster,
          "this machine, as meshplan calibrate wrote it; without it a short calibration is first")
      .is_path()
      .option("--data", options->policy.data, "text or token file")
      .is_path()
      .option("--steps", options->policy.steps, "of a run in a round; the first is warm-up")
      .between(2, 1000)
      .option("--rounds", options->policy.most_rounds, "in which all runs take turns")
      .between(1, 100)
      .flag("--json", options->json, "print the figures for programs");
  add_host_options(command, options->policy.hosts);
  command
      .examples(
          "  meshplan lesson              # what there is\n"
          "  meshplan lesson 3\n"
          "  meshplan lesson 3 --cluster here.json --rounds 5")
      .on_run([options] {
        options->policy.least_rounds = options->policy.most_rounds;
        return run(*options);
      });
}

}  // namespace meshplan::cli
