#include "ranks/timed_run.hpp"

#include <filesystem>
#include <fmt/format.h>

#include "core/error.hpp"
#include "ranks/ranks.hpp"
#include "reports/comparison.hpp"

namespace meshplan::cli {

int run_timed(const TimedRun& run, const program::Plan& plan, const HostOptions& hosts) {
  const auto absolute = [](const std::string& path) {
    return std::filesystem::absolute(path).string();
  };
  std::vector<std::string> arguments{"run",
                                     absolute(run.plan_file),
                                     "--steps",
                                     std::to_string(run.steps),
                                     "--data",
                                     absolute(run.data),
                                     "--traced-steps",
                                     std::to_string(run.traced_steps),
                                     "--trace",
                                     absolute(run.trace_file),
                                     "--quiet",
                                     "--hang-timeout",
                                     fmt::format("{}", hosts.hang_timeout_s)};
  arguments.insert(arguments.end(), run.device_flags.begin(), run.device_flags.end());
  HostOptions where = hosts;
  if (plan.progress_thread) where.cores_per_rank = 2;
  return launch_self(plan.parallel.world_size(), where, std::move(arguments), std::nullopt,
                     run.ends_at);
}

std::vector<double> counted_step_times(const program::Trace& run) {
  return {run.step_times_s.begin() + reports::step_times(run).warmup_steps, run.step_times_s.end()};
}

program::MachineSpeed mean_of(const std::vector<program::MachineSpeed>& runs) {
  require_invariant(!runs.empty(), "a mean is of something");
  program::MachineSpeed mean = runs.back();
  mean.reference_s = 0;
  mean.other_cores = 0;
  const auto count = static_cast<double>(runs.size());
  for (const program::MachineSpeed& run : runs) {
    mean.reference_s += run.reference_s / count;
    mean.other_cores += run.other_cores / count;
  }
  return mean;
}

}  // namespace meshplan::cli
