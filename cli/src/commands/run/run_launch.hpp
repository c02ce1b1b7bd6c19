// The start of a run's ranks: what is checked before, and the job itself.
#pragma once

#include <functional>
#include <string>

#include "options/command_line.hpp"
#include "options/run/run_options.hpp"
#include "program/plan/plan.hpp"
#include "ranks/devices.hpp"
#include "runtime/launch/launch.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::cli {

/// The plan of the options' file, with what they change of it. @throws ConfigError
program::Plan load_plan(const RunOptions& options);

/// Fills in what was not given, before the device is chosen. An elastic run saves by itself.
void resolve(RunOptions& options);

/// Takes a line about an elastic run.
using Say = std::function<void(const std::string&)>;

/// resolve() for an elastic run: if the newest checkpoint has been damaged while nobody looked, the
/// run goes on from the newest intact one.
/// @throws ConfigError, IoError as resolve()
void resolve_intact(RunOptions& options, const Say& say);

/// Renames checkpoints that are newer than the newest intact one, so that nothing resumes from
/// them. @returns whether there were some. @throws IoError if one cannot be renamed
bool set_damaged_aside(const RunOptions& options, const Say& say);

/// Makes the plan again for the ranks that the options ask for, writes it beside the checkpoints,
/// or into the current folder if none are saved, and has the options name that file. A line on
/// standard error says what changes.
/// @param plan  of the options, with what they change. @throws ConfigError, InfeasibleError,
/// IoError
void plan_again(RunOptions& options, const program::Plan& plan);

/// Writes `planned` on `cluster` for ranks, which apply the options of the command line themselves:
/// what these change is as in the file that the run was started with.
void write_run_plan(const std::string& path, program::Plan planned, const sim::Cluster& cluster,
                    const std::string& original_file);

/// What a run computes on, and what follows from it for its options. @throws ConfigError
DeviceKind choose_device(RunOptions& options, const program::Plan& plan);

/// @throws IoError, ConfigError if what is to be written at the end cannot be
void require_places(const RunOptions& options);

/// Who steers a job while it runs; all may be null.
struct JobWatch {
  decltype(runtime::LaunchSpec::wants_stop) wants_stop;
  decltype(runtime::LaunchSpec::on_step) on_step;
};

/// Checks what can be known without ranks, and runs the job.
/// @param options  resolved. @throws ConfigError, IoError
runtime::JobEnd launch(const RunOptions& options, const Command& command, const program::Plan& plan,
                       DeviceKind device, const JobWatch& watch = {});

}  // namespace meshplan::cli
