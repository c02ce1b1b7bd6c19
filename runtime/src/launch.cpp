#include "runtime/launch.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.hpp"
#include "local_socket.hpp"

namespace meshplan::runtime {
namespace {

constexpr int kInterrupted = 130;  // 128 + SIGINT
constexpr int kReportGraceMs = 300;

int exit_code_of(int status, bool interrupted) {
  if (interrupted) return kInterrupted;
  if (!WIFEXITED(status)) return 1;
  const int code = WEXITSTATUS(status);
  const bool is_ours = (code >= 0 && code <= 3) || code == kInterrupted;
  return is_ours ? code : 1;  // mpiexec: the signal that killed a rank, or its own trouble
}

/// Blocks the signals that are to be passed on and reads them from a descriptor; the child gets the
/// mask from before.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD})
      sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
    descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~BlockedSignals() {
    ::close(descriptor_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  const sigset_t& before() const { return before_; }
  int descriptor() const { return descriptor_; }
  std::optional<signalfd_siginfo> next() const {
    signalfd_siginfo info{};
    const bool got = ::read(descriptor_, &info, sizeof(info)) == sizeof(info);
    return got ? std::optional(info) : std::nullopt;
  }

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

/// Hears the guardians of this machine and repeats what they say on standard error: the pipes of
/// mpiexec may break while it cleans up.
class ReportRelay {
 public:
  ReportRelay()
      : name_(fmt::format("meshplan-launch-{}", ::getpid())), socket_(listen_for_reports(name_)) {}
  ~ReportRelay() { ::close(socket_); }
  ReportRelay(const ReportRelay&) = delete;
  ReportRelay& operator=(const ReportRelay&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return socket_; }
  void relay() {
    std::vector<char> text(65536);
    for (ssize_t length = 0;
         (length = ::recv(socket_, text.data(), text.size(), MSG_DONTWAIT)) > 0;) {
      [[maybe_unused]] const auto written =
          ::write(STDERR_FILENO, text.data(), static_cast<std::size_t>(length));
      heard_ = true;
    }
  }
  /// mpiexec may be faster than a guardian.
  void await_report(int timeout_ms) {
    relay();
    pollfd ready{socket_, POLLIN, 0};
    if (!heard_ && ::poll(&ready, 1, timeout_ms) > 0) relay();
  }

 private:
  std::string name_;
  int socket_;
  bool heard_ = false;
};

pid_t spawn(std::vector<std::string> command, const BlockedSignals& signals) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &signals.before());
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, arguments[0], nullptr, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    throw IoError(
        fmt::format("cannot start {}: {}; is MPICH installed?", command[0], std::strerror(error)));
  return child;
}

}  // namespace

int launch_ranks(const LaunchSpec& spec) {
  ReportRelay reports;
  LaunchSpec with_report = spec;
  with_report.environment.push_back(fmt::format("{}={}", kReportSocketVariable, reports.name()));
  const BlockedSignals signals;
  const pid_t child = spawn(mpiexec_command(with_report), signals);
  bool interrupted = false;
  bool asked_to_stop = !spec.ranks_stop_by_themselves;
  while (true) {
    pollfd ready[] = {{signals.descriptor(), POLLIN, 0}, {reports.descriptor(), POLLIN, 0}};
    ::poll(ready, 2, -1);
    reports.relay();
    const auto signal = signals.next();
    if (!signal) continue;
    const auto number = static_cast<int>(signal->ssi_signo);
    if (number != SIGCHLD) {
      interrupted = interrupted || number == SIGINT;
      if (number == SIGTERM && !asked_to_stop) {
        asked_to_stop = true;
        ::kill(child, SIGUSR1);
        continue;
      }
      // The terminal has sent its signals to the child too; twice means "force" to mpiexec.
      if (signal->ssi_code <= 0) ::kill(child, number);
      continue;
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) != child) continue;
    int code = exit_code_of(status, interrupted);
    // mpiexec forgot the ranks' exit codes in 2 of 10 runs that it had passed a signal to.
    if (code == 0 && spec.ranks_stop_by_themselves && asked_to_stop) code = kInterrupted;
    if (code != 0) reports.await_report(kReportGraceMs);
    return code;
  }
}

std::optional<OuterLaunch> detect_outer_launch(const EnvironmentLookup& environment) {
  const auto number = [&](const char* name) -> std::optional<int> {
    const char* text = environment(name);
    int value = 0;
    if (text == nullptr) return std::nullopt;
    const char* end = text + std::strlen(text);
    const auto parsed = std::from_chars(text, end, value);
    return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(value) : std::nullopt;
  };
  const auto pmi_rank = number("PMI_RANK");
  const auto pmi_size = number("PMI_SIZE");
  const auto slurm_rank = number("SLURM_PROCID");
  const auto slurm_size = number("SLURM_NTASKS");
  // A batch script of Slurm has SLURM_PROCID=0 too; only srun's tasks have a step with a launcher.
  const bool in_srun = slurm_rank && slurm_size && environment("SLURM_SRUN_COMM_HOST") != nullptr;
  if (in_srun) return OuterLaunch{"srun", *slurm_rank, *slurm_size};
  if (pmi_rank && pmi_size) return OuterLaunch{"mpiexec", *pmi_rank, *pmi_size};
  return std::nullopt;
}

std::vector<std::string> mpiexec_command(const LaunchSpec& spec) {
  if (spec.ranks < 1)
    throw ConfigError(fmt::format("launch: ranks = {}; at least 1 is needed", spec.ranks));
  if (spec.command.empty()) throw ConfigError("launch: there is no program to run");
  std::vector<std::string> words{spec.mpiexec, "-n", std::to_string(spec.ranks)};
  int largest_share = spec.ranks;
  if (!spec.hosts.empty()) {
    std::string list;
    int slots = 0;
    int most_slots = 0;
    for (const HostSlots& host : spec.hosts) {
      list += fmt::format("{}{}:{}", list.empty() ? "" : ",", host.name, host.slots);
      slots += host.slots;
      most_slots = std::max(most_slots, host.slots);
    }
    const int rounds = (spec.ranks + slots - 1) / slots;  // hydra starts over when slots run out
    words.insert(words.end(), {"-hosts", list});
    const auto local = [](const HostSlots& host) { return is_this_machine(host.name); };
    const auto num_local = std::ranges::count_if(spec.hosts, local);
    if (num_local == std::ssize(spec.hosts)) words.insert(words.end(), {"-launcher", "fork"});
    // Several names of this machine share its cores.
    largest_share = num_local > 1 ? spec.ranks : std::min(spec.ranks, rounds * most_slots);
  }
  const int wanted = largest_share * spec.cores_per_rank;
  if (spec.bind_to_cores && spec.cores_per_rank > 1 && wanted <= spec.cores_per_host) {
    const std::string cores = fmt::format("core:{}", spec.cores_per_rank);
    words.insert(words.end(), {"-bind-to", cores, "-map-by", cores});
  } else if (spec.bind_to_cores &&
             (spec.cores_per_rank == 1 ? largest_share <= spec.cores_per_host
                                       : largest_share == spec.cores_per_host)) {
    words.insert(words.end(), {"-bind-to", "core", "-map-by", "core"});
  }
  for (const std::string& variable : spec.environment) {
    const auto equals = variable.find('=');
    if (equals == std::string::npos || equals == 0)
      throw ConfigError(fmt::format("launch: environment '{}': write it as NAME=VALUE", variable));
    words.insert(words.end(), {"-genv", variable.substr(0, equals), variable.substr(equals + 1)});
  }
  words.insert(words.end(), spec.command.begin(), spec.command.end());
  return words;
}

}  // namespace meshplan::runtime
