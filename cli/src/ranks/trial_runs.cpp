#include "ranks/trial_runs.hpp"

#include <algorithm>
#include <cmath>

#include "output/progress.hpp"
#include "process/exit_codes.hpp"
#include "process/gzip.hpp"
#include "program/trace/trace_blocks.hpp"
#include "ranks/timed_run.hpp"
#include "reports/comparison.hpp"
#include "reports/machine_drift.hpp"
#include "runtime/train/preflight.hpp"

namespace meshplan::cli {
namespace {

/// One plan's measurements so far.
struct Measured {
  program::Trace runs;  // of all rounds, without their warm-up
  double previous_median_s = 0;
  double median_s = 0;
  std::vector<program::MachineSpeed> machines;  // of the rounds
};

/// Runs one plan once. @returns the job's exit code
int measure(const TrialPlan& plan, const TrialPolicy& policy, const std::string& trace_file,
            Measured& measured) {
  const int code = run_timed({.plan_file = plan.file,
                              .data = policy.data,
                              .steps = policy.steps,
                              .trace_file = trace_file},
                             plan.plan, policy.hosts);
  if (code != kDone) return code;
  const program::Trace trace = program::parse_trace(unpacked_blocks(trace_file), trace_file);
  const std::vector<double> seconds = counted_step_times(trace);
  program::Trace& all = measured.runs;
  all.step_times_s.insert(all.step_times_s.end(), seconds.begin(), seconds.end());
  all.losses = trace.losses;
  all.peak_memory_bytes = std::max(all.peak_memory_bytes, trace.peak_memory_bytes);
  if (trace.machine) measured.machines.push_back(*trace.machine);
  measured.previous_median_s = measured.median_s;
  measured.median_s = reports::step_times(all).median_s;
  return kDone;
}

bool is_stable(const std::vector<Measured>& all, double tolerance) {
  return std::ranges::all_of(all, [tolerance](const Measured& one) {
    return std::abs(one.median_s / one.previous_median_s - 1) <= tolerance;
  });
}

reports::TrialRow row_of(const TrialPlan& plan, const Measured& measured) {
  const reports::StepTimes times = reports::step_times(measured.runs);
  const program::MachineSpeed machine =
      measured.machines.empty() ? program::MachineSpeed{} : mean_of(measured.machines);
  return {.name = plan.name,
          .plan = plan.plan,
          .predicted_s = plan.plan.prediction->step_time_s,
          .predicted_memory_bytes = plan.plan.prediction->peak_memory_bytes,
          .measured_s = times.median_s,
          .p10_s = times.p10_s,
          .p90_s = times.p90_s,
          .steps = times.steps,
          .measured_memory_bytes = measured.runs.peak_memory_bytes,
          .first_loss = measured.runs.losses.front(),
          .last_loss = measured.runs.losses.back(),
          .slowdown = reports::slowdown(machine, plan.plan.cluster_json),
          .machine = machine};
}

}  // namespace

std::variant<reports::Trial, int> run_in_turns(const std::vector<TrialPlan>& plans,
                                               const TrialPolicy& policy, TemporaryFolder& folder,
                                               const Terminal& terminal) {
  for (const TrialPlan& plan : plans) runtime::check_data(plan.plan, policy.data, false);
  std::vector<Measured> all(plans.size());
  reports::Trial trial;
  Progress progress("running plans in turns", terminal);
  const auto most = static_cast<std::size_t>(policy.most_rounds) * plans.size();
  std::size_t done = 0;
  while (trial.rounds < policy.most_rounds) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const int code = measure(plans[i], policy, folder.file("trace.json"), all[i]);
      if (code != kDone) return code;
      progress.update(++done, most);
    }
    ++trial.rounds;
    if (trial.rounds >= policy.least_rounds && is_stable(all, policy.stable)) break;
  }
  for (std::size_t i = 0; i < plans.size(); ++i) trial.rows.push_back(row_of(plans[i], all[i]));
  return trial;
}

}  // namespace meshplan::cli
