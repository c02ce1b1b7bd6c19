#include "ranks/ranks.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "runtime/job/mpi_session.hpp"
#include "runtime/job/run_rank.hpp"
#include "runtime/job/tcp_session.hpp"
#include "runtime/launch/proxy_exit_code.hpp"
#include "runtime/launch/rendezvous.hpp"
#include "runtime/os/host_info.hpp"

namespace meshplan::cli {

namespace {

const char* environment(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
}

/// Under mpiexec the variables of torchrun mean nothing: perhaps a container sets them for all.
std::optional<runtime::Rendezvous> rendezvous() {
  if (runtime::detect_outer_launch(environment)) return std::nullopt;
  return runtime::read_rendezvous(environment);
}

}  // namespace

bool is_rank() {
  return runtime::detect_outer_launch(environment) || rendezvous();
}

std::vector<runtime::HostSlots> parse_hosts(const HostOptions& options) {
  if (options.hosts && options.hostfile) throw ConfigError("give --hosts or --hostfile, not both");
  if (options.hosts) return runtime::parse_host_list(*options.hosts);
  if (options.hostfile)
    return runtime::parse_hostfile(read_file(*options.hostfile), *options.hostfile);
  return {};
}

bool starts_here(const HostOptions& options) {
  const std::vector<runtime::HostSlots> hosts = parse_hosts(options);
  runtime::require_known_hosts(hosts);
  return hosts.empty() || runtime::is_this_machine(hosts.front().name);
}

namespace {

void check(const HostOptions& options) {
  if (!(options.hang_timeout_s > 0))
    throw ConfigError(
        fmt::format("--hang-timeout {}: must be more than 0 seconds", options.hang_timeout_s));
}

}  // namespace

int launch_self(int ranks, const HostOptions& options, std::vector<std::string> arguments,
                const std::optional<StoppableJob>& stoppable,
                decltype(runtime::LaunchSpec::ends_at) ends_at) {
  return run_self(ranks, options, std::move(arguments), stoppable, ends_at).code;
}

runtime::JobEnd run_self(int ranks, const HostOptions& options, std::vector<std::string> arguments,
                         const std::optional<StoppableJob>& stoppable,
                         decltype(runtime::LaunchSpec::ends_at) ends_at) {
  check(options);
  const std::vector<runtime::HostSlots> hosts = parse_hosts(options);
  runtime::require_slots(hosts, ranks);
  runtime::require_known_hosts(hosts);
  runtime::LaunchSpec spec{.ranks = ranks,
                           .hosts = hosts,
                           .cores_per_host = static_cast<int>(runtime::detect_host().cores.size()),
                           .cores_per_rank = options.cores_per_rank,
                           .bind_to_cores = !options.no_binding,
                           .command = {std::filesystem::read_symlink("/proc/self/exe").string()},
                           .ranks_stop_by_themselves = stoppable.has_value(),
                           .ends_at = ends_at};
  if (stoppable) {
    spec.describe = stoppable->describe;
    spec.on_lost_output = stoppable->on_lost_output;
    spec.wants_stop = stoppable->wants_stop;
    spec.on_step = stoppable->on_step;
  }
  for (std::string& argument : arguments) spec.command.push_back(std::move(argument));
  return runtime::run_job(spec);
}

int as_rank(const HostOptions& options, const std::function<int(runtime::Job&)>& work) {
  check(options);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves is no reason to end a job
  const auto in_session = [&](const runtime::Session& session) {
    return runtime::run_rank(session, [&] {
      runtime::Job job(session, {.hang_timeout = Seconds{options.hang_timeout_s}});
      return work(job);
    });
  };
  if (const std::optional<runtime::Rendezvous> place = rendezvous()) {
    constexpr Seconds kToMeet{300.0};  // machines of a large job do not start together
    const runtime::TcpSession session(*place, kToMeet);
    return in_session(session);
  }
  int argc = 0;
  char** argv = nullptr;
  int code = 0;
  {
    const runtime::MpiSession session(argc, argv);
    code = in_session(session);
  }
  if (code == kInterrupted) runtime::let_proxy_see_exit_code();
  return code;
}

}  // namespace meshplan::cli
