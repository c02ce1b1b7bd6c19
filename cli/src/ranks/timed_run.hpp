// A plan that is run to be timed: what `trial` and `tune` repeat in turns.
#pragma once

#include <string>
#include <vector>

#include "options/host_options.hpp"
#include "program/calibration/machine_speed.hpp"
#include "program/plan/plan.hpp"
#include "program/trace/trace.hpp"
#include "runtime/launch/launch.hpp"

namespace meshplan::cli {

struct TimedRun {
  std::string plan_file;
  std::string data;                                               // text or token file
  int steps = 4;                                                  // the first is warm-up
  int traced_steps = 0;                                           // after the timed ones
  std::string trace_file;                                         // that rank 0 writes
  std::vector<std::string> device_flags = {};                     // of `run`: what it computes on
  decltype(runtime::LaunchSpec::ends_at) ends_at = std::nullopt;  // when it is ended
};

/// Runs the plan once. @returns the exit code of runtime::launch_ranks; unless kDone, there is no
/// trace
int run_timed(const TimedRun& run, const program::Plan& plan, const HostOptions& hosts);

/// Seconds of the steps that count: without the warm-up.
std::vector<double> counted_step_times(const program::Trace& run);

/// What several runs saw of one machine: means of what was measured. @param runs  at least one
program::MachineSpeed mean_of(const std::vector<program::MachineSpeed>& runs);

}  // namespace meshplan::cli
