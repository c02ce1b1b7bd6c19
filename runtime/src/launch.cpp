#include "runtime/launch.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

constexpr int kInterrupted = 130;  // 128 + SIGINT

int exit_code_of(int status, bool interrupted) {
  if (interrupted) return kInterrupted;
  if (!WIFEXITED(status)) return 1;
  const int code = WEXITSTATUS(status);
  const bool is_ours = (code >= 0 && code <= 3) || code == kInterrupted;
  return is_ours ? code : 1;  // mpiexec: the signal that killed a rank, or its own trouble
}

/// Blocks the signals that are to be passed on; the child gets the mask from before.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD})
      sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  const sigset_t& before() const { return before_; }
  siginfo_t wait() const {
    siginfo_t info{};
    while (sigwaitinfo(&set_, &info) < 0) {
    }
    return info;
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
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
  LaunchSpec with_report = spec;
  with_report.environment.push_back(
      fmt::format("{}=/proc/{}/fd/{}", kReportPathVariable, ::getpid(), STDERR_FILENO));
  const BlockedSignals signals;
  const pid_t child = spawn(mpiexec_command(with_report), signals);
  bool interrupted = false;
  while (true) {
    const siginfo_t signal = signals.wait();
    if (signal.si_signo != SIGCHLD) {
      interrupted = interrupted || signal.si_signo == SIGINT;
      // The terminal has sent its signals to the child too; twice means "force" to mpiexec.
      if (signal.si_code <= 0) ::kill(child, signal.si_signo);
      continue;
    }
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return exit_code_of(status, interrupted);
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
  if (spec.bind_to_cores && largest_share <= spec.cores_per_host)
    words.insert(words.end(), {"-bind-to", "core", "-map-by", "core"});
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
