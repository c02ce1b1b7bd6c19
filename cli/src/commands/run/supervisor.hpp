// meshplan run --elastic: starts the run's jobs one after the other, each with the plan for what is
// there. It holds no training logic: planner and runtime do the work, as for everyone, by files.
#pragma once

#include "options/command_line.hpp"
#include "options/run/run_options.hpp"

namespace meshplan::cli {

/// Runs jobs until all steps are done, a signal ends the run, or it cannot go on.
/// @param options  as the command line gave them; they change with each job, and `command` tells
/// the ranks what they hold
/// @returns the exit code of the command. @throws ConfigError, IoError before the first job
int supervise(RunOptions& options, const Command& command);

}  // namespace meshplan::cli
