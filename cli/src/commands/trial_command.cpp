// meshplan trial: runs several plans in turns and lays predicted beside measured.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/temporary_folder.hpp"
#include "program/plan_file/plan_file.hpp"
#include "ranks/timed_run.hpp"
#include "reports/comparison.hpp"
#include "reports/machine_drift.hpp"
#include "reports/trial_report.hpp"
#include "runtime/train/preflight.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  std::vector<std::string> plans;
  std::string data = runtime::kDefaultText;
  int steps = 4;
  int least_rounds = 3;
  int most_rounds = 8;
  double stable = 0.02;
  std::optional<std::string> csv;
  std::optional<std::string> markdown;
  bool json = false;
  Terminal terminal;
  HostOptions hosts;
};

/// One plan's measurements so far.
struct Candidate {
  std::string file;
  program::Plan plan;
  program::Trace measured;  // of all rounds
  double previous_median_s = 0;
  double median_s = 0;
  std::vector<program::MachineSpeed> machines;  // of the rounds
};

std::vector<Candidate> load(const Options& options) {
  if (options.plans.empty()) throw ConfigError("which plans? usage: meshplan trial a.json b.json");
  std::vector<Candidate> candidates;
  for (const std::string& file : options.plans) {
    Candidate candidate{.file = file, .plan = program::parse_plan(read_file(file), file)};
    if (!candidate.plan.prediction)
      throw ConfigError(
          fmt::format("{}: prediction: missing; write the plan with `meshplan plan --out` or "
                      "`meshplan simulate --out`",
                      file));
    runtime::check_data(candidate.plan, options.data, false);
    candidate.measured = {.measured = true, .plan = candidate.plan};
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

/// Runs one plan once. @returns the job's exit code
int measure(const Options& options, const std::string& trace_file, Candidate& candidate) {
  const int code = run_timed({.plan_file = candidate.file,
                              .data = options.data,
                              .steps = options.steps,
                              .trace_file = trace_file},
                             candidate.plan, options.hosts);
  if (code != kDone) return code;
  const program::Trace trace = program::parse_trace(read_file(trace_file), trace_file);
  const std::vector<double> seconds = counted_step_times(trace);
  program::Trace& all = candidate.measured;
  all.step_times_s.insert(all.step_times_s.end(), seconds.begin(), seconds.end());
  all.losses = trace.losses;
  all.peak_memory_bytes = std::max(all.peak_memory_bytes, trace.peak_memory_bytes);
  if (trace.machine) candidate.machines.push_back(*trace.machine);
  candidate.previous_median_s = candidate.median_s;
  program::Trace counted = all;
  counted.measured = false;  // its warm-up is gone already
  candidate.median_s = reports::step_times(counted).median_s;
  return kDone;
}

bool is_stable(const std::vector<Candidate>& candidates, double tolerance) {
  return std::ranges::all_of(candidates, [tolerance](const Candidate& candidate) {
    return std::abs(candidate.median_s / candidate.previous_median_s - 1) <= tolerance;
  });
}

reports::TrialRow row_of(const Candidate& candidate) {
  program::Trace counted = candidate.measured;
  counted.measured = false;
  const reports::StepTimes times = reports::step_times(counted);
  const program::MachineSpeed machine =
      candidate.machines.empty() ? program::MachineSpeed{} : mean_of(candidate.machines);
  return {.name = std::filesystem::path(candidate.file).stem().string(),
          .plan = candidate.plan,
          .predicted_s = candidate.plan.prediction->step_time_s,
          .predicted_memory_bytes = candidate.plan.prediction->peak_memory_bytes,
          .measured_s = times.median_s,
          .p10_s = times.p10_s,
          .p90_s = times.p90_s,
          .steps = times.steps,
          .measured_memory_bytes = candidate.measured.peak_memory_bytes,
          .first_loss = candidate.measured.losses.front(),
          .last_loss = candidate.measured.losses.back(),
          .slowdown = reports::slowdown(machine, candidate.plan.cluster_json),
          .machine = machine};
}

int run(const Options& options) {
  if (options.steps < 2)
    throw ConfigError(fmt::format("--steps {}: at least 2, the first is warm-up", options.steps));
  if (options.least_rounds < 1 || options.most_rounds < options.least_rounds)
    throw ConfigError(fmt::format("--rounds {} --most-rounds {}: at least 1, and most >= least",
                                  options.least_rounds, options.most_rounds));
  require_writable({options.csv, options.markdown});
  std::vector<Candidate> candidates = load(options);
  TemporaryFolder folder;
  reports::Trial trial;
  Progress progress("running plans in turns", options.terminal);
  const auto most = static_cast<std::size_t>(options.most_rounds) * candidates.size();
  std::size_t done = 0;
  while (trial.rounds < options.most_rounds) {
    for (Candidate& candidate : candidates) {
      const int code = measure(options, folder.file("trace.json"), candidate);
      if (code != kDone) return code;
      progress.update(++done, most);
    }
    ++trial.rounds;
    if (trial.rounds >= options.least_rounds && is_stable(candidates, options.stable)) break;
  }
  for (const Candidate& candidate : candidates) trial.rows.push_back(row_of(candidate));
  if (const std::string busy = reports::busy_cores(trial); !busy.empty())
    output(stderr, "meshplan: warning: {}; steps take longer than on a quiet machine\n", busy);
  if (options.csv) write_file(*options.csv, reports::to_csv(trial));
  if (options.markdown) write_file(*options.markdown, reports::to_markdown(trial));
  output("{}", options.json ? reports::to_json(trial) : reports::to_text(trial));
  return kDone;
}

}  // namespace

void add_trial_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  options->terminal = line.terminal();
  Command command = line.add("trial", "Run several plans in turns; predicted beside measured");
  command.rest(options->plans, "plan files with predictions")
      .takes_file()
      .option("--data", options->data, "text or token file")
      .is_path()
      .option("--steps", options->steps, "of a plan in a round; the first is warm-up")
      .option("--rounds", options->least_rounds, "at least")
      .option("--most-rounds", options->most_rounds, "at most")
      .option("--stable", options->stable,
              "stop when no plan's median moved more than this fraction in a round")
      .option("--csv", options->csv, "write a line per plan to this file")
      .is_path()
      .option("--markdown", options->markdown, "write the table for a report to this file")
      .is_path()
      .flag("--json", options->json, "print the result for programs");
  add_host_options(command, options->hosts);
  command.examples("  meshplan trial plans/*.json").on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
