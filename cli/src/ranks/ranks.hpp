// Starting this program again as the ranks of a job.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/units.hpp"
#include "options/host_options.hpp"
#include "runtime/job/job.hpp"
#include "runtime/launch/launch.hpp"

namespace meshplan::cli {

/// Has an outer launcher made this process a rank: mpiexec, srun, or torchrun by its variables?
/// @throws ConfigError if only some of torchrun's variables are set, or are wrong
bool is_rank();

/// A job that the first signal asks to stop (runtime/os/stop_signal.hpp), instead of ending it.
struct StoppableJob {
  decltype(runtime::LaunchSpec::describe) describe;              // its end by a signal
  decltype(runtime::LaunchSpec::on_lost_output) on_lost_output;  // see there
  decltype(runtime::LaunchSpec::wants_stop) wants_stop;          // see there
  decltype(runtime::LaunchSpec::on_step) on_step;                // see there
};

/// Runs `arguments` of this program on `ranks` ranks.
/// @param ends_at  when it is ended    @returns the exit code of runtime::launch_ranks
int launch_self(int ranks, const HostOptions& options, std::vector<std::string> arguments,
                const std::optional<StoppableJob>& stoppable = std::nullopt,
                decltype(runtime::LaunchSpec::ends_at) ends_at = std::nullopt);

/// The same, with what a supervisor needs to go on.
runtime::JobEnd run_self(int ranks, const HostOptions& options, std::vector<std::string> arguments,
                         const std::optional<StoppableJob>& stoppable = std::nullopt,
                         decltype(runtime::LaunchSpec::ends_at) ends_at = std::nullopt);

/// The body of a rank: session, watchdog, work; errors end the whole job. Ranks that torchrun's
/// variables place communicate by TCP, others by MPI.
int as_rank(const HostOptions& options, const std::function<int(runtime::Job&)>& work);

/// Is this the machine of rank 0, which writes the results? @throws ConfigError
bool starts_here(const HostOptions& options);

/// Hosts of the options, in order; empty = this machine. @throws ConfigError
std::vector<runtime::HostSlots> parse_hosts(const HostOptions& options);

}  // namespace meshplan::cli
