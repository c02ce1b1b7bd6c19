#include "launch/launched_job.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "launch/launcher_watch.hpp"
#include "os/orphaned_memory.hpp"
#include "runtime/os/stop_signal.hpp"

namespace meshplan::runtime {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{250};
constexpr milliseconds kFirstTicks{20};           // while mpiexec starts its helpers
constexpr milliseconds kTimeToStart{15'000};      // for mpiexec, its helpers
constexpr milliseconds kGraceOfReport{300};       // mpiexec may be faster than a guardian
constexpr milliseconds kGraceOfMpiexec{4'000};    // to notice by itself
constexpr milliseconds kGraceOfInterrupt{2'000};  // mpiexec ends its ranks itself
constexpr milliseconds kGraceOfForce{500};        // ranks remove half-written files
constexpr milliseconds kGraceOfRanks{4'000};      // to be gone after mpiexec
constexpr double kTimeUnguardedS = 8;             // or for ranks to say that they have none

constexpr std::string_view kBeforeCause = "meshplan: the job ends: ";

/// The cause that a guardian's report begins with.
std::string first_cause(const std::string& report) {
  const std::string line = printable(report.substr(0, report.find('\n')));
  return line.starts_with(kBeforeCause) ? line.substr(kBeforeCause.size()) : line;
}

bool is_ours(int code) {
  return (code >= 0 && code <= 3) || code == kInterrupted;
}

/// mpiexec would wait two minutes for each host that does not answer, as long as TCP does.
void limit_ssh(const LaunchSpec& spec) {
  const auto is_remote = [](const HostSlots& host) { return !is_this_machine(host.name); };
  const bool uses_ssh =
      std::ranges::any_of(spec.hosts, is_remote) &&
      std::getenv("HYDRA_LAUNCHER") == nullptr &&  // NOLINT(concurrency-mt-unsafe)
      std::getenv("SLURM_JOB_ID") == nullptr;      // NOLINT(concurrency-mt-unsafe)
  constexpr int kKeep = 0;
  if (uses_ssh)
    ::setenv("HYDRA_LAUNCHER_EXTRA_ARGS", "-o ConnectTimeout=8",
             kKeep);  // NOLINT(concurrency-mt-unsafe)
}

/// What mpiexec is started with.
struct Surroundings {
  const BlockedSignals& signals;
  int stdout_end;
  int stderr_end;
};

/// Runs in a forked child: nothing here may allocate. mpiexec gets a session of its own: what a
/// terminal, `timeout` or `kill -PGID` sends to this process's group would end the ranks before
/// they have saved. A hang-up would end mpiexec and its proxies, which do not handle it. From
/// another session mpiexec would read the terminal against the shell, so it gets no input.
[[noreturn]] void become(char* const* arguments, const Surroundings& around, pid_t parent,
                         int error_pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == parent) {
    ::setsid();
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
    ::dup2(around.stdout_end, STDOUT_FILENO);
    ::dup2(around.stderr_end, STDERR_FILENO);
    around.signals.undo_in_child();
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGHUP, &ignore, nullptr);
    ::execvp(arguments[0], arguments);
    const int error = errno;
    [[maybe_unused]] const auto written = ::write(error_pipe, &error, sizeof(error));
  }
  ::_exit(127);
}

/// Starts a child that the kernel kills when this thread ends, however it ends.
pid_t spawn(std::vector<std::string> command, const Surroundings& around) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int error_pipe[2] = {-1, -1};
  int error = ::pipe2(error_pipe, O_CLOEXEC) == 0 ? 0 : errno;
  const pid_t parent = ::getpid();
  const pid_t child = error == 0 ? ::fork() : -1;
  if (child == 0) become(arguments.data(), around, parent, error_pipe[1]);
  if (child < 0 && error == 0) error = errno;
  if (error_pipe[1] >= 0) ::close(error_pipe[1]);
  if (child > 0 && ::read(error_pipe[0], &error, sizeof(error)) == sizeof(error))
    ::waitpid(child, nullptr, 0);
  if (error_pipe[0] >= 0) ::close(error_pipe[0]);
  if (error != 0)
    throw IoError(
        fmt::format("cannot start {}: {}; is MPICH installed?", command[0], std::strerror(error)));
  return child;
}

LaunchSpec with_variables(LaunchSpec spec, const std::string& report_socket, bool ignores_hangup) {
  spec.environment.push_back(fmt::format("{}={}", kReportSocketVariable, report_socket));
  if (ignores_hangup) spec.environment.push_back(fmt::format("{}=1", kIgnoreHangupVariable));
  return spec;
}

/// Was mpiexec, or its only rank, ended by one of the signals that users send? Of several ranks
/// mpiexec says the exit codes or-ed: 15 is SIGTERM, and SIGABRT beside the SIGKILL of the others.
bool is_ended_by_request(int status, int ranks) {
  const auto is_request = [](int number) {
    return number == SIGTERM || number == SIGINT || number == SIGHUP;
  };
  if (WIFSIGNALED(status)) return is_request(WTERMSIG(status));
  return WEXITSTATUS(status) == kInterrupted || (ranks == 1 && WEXITSTATUS(status) == SIGTERM);
}

}  // namespace

LaunchedJob::LaunchedJob(const LaunchSpec& spec)
    : spec_(with_variables(spec, desk_.name(), signals_.ignores_hangup())),
      started_wall_s_(std::time(nullptr)) {
  limit_ssh(spec_);
  mpiexec_ = spawn(
      mpiexec_command(spec_),
      {.signals = signals_, .stdout_end = stdout_.child_end(), .stderr_end = stderr_.child_end()});
  stdout_.close_child_end();
  stderr_.close_child_end();
}

JobEnd LaunchedJob::run() {
  while (true) {
    wait_for_something();
    pass_signals();
    stop_if_wished();
    end_in_time();
    relay();
    pass_on_output();
    find_helpers();
    // What the helpers' ends mean is known only once mpiexec is known to live on.
    if (const auto status = status_of_mpiexec()) return conclude(*status);
    supervise();
  }
}

void LaunchedJob::wait_for_something() {
  std::vector<pollfd> fds{{signals_.descriptor(), POLLIN, 0}};
  for (const int descriptor : desk_.descriptors()) fds.push_back({descriptor, POLLIN, 0});
  for (const Helper& helper : helpers_) fds.push_back({helper.process.descriptor(), POLLIN, 0});
  stdout_.add_to(fds);
  stderr_.add_to(fds);
  const bool starting = Clock::now() - started_ < 10 * kTick;
  milliseconds tick = starting ? kFirstTicks : kTick;
  if (may_run_out_of_time())
    tick = std::clamp(std::chrono::ceil<milliseconds>(*spec_.ends_at - Clock::now()),
                      milliseconds{0}, tick);
  ::poll(fds.data(), fds.size(), static_cast<int>(tick.count()));
}

void LaunchedJob::pass_signals() {
  while (const auto signal = signals_.next()) {
    const auto number = static_cast<int>(signal->ssi_signo);
    if (number == SIGUSR2) ::kill(mpiexec_, number);
    if (number == SIGUSR2 || number == SIGCHLD) continue;
    if (!asked_at_)
      ask_to_stop(number);
    else if (wished_ && asked_by_ == 0)
      asked_by_ = number;  // the ranks stop already
    else if (request_complete_)
      force();
  }
  note_age_of_request();
}

void LaunchedJob::stop_if_wished() {
  if (!spec_.wants_stop || asked_at_ || end_at_ || !spec_.wants_stop()) return;
  wished_ = true;
  ask_to_stop(0);
}

/// After the signals that have come: what came while this process could not run was sent in time.
void LaunchedJob::note_age_of_request() {
  if (asked_at_ && Clock::now() - *asked_at_ > kOneRequest) request_complete_ = true;
}

void LaunchedJob::ask_to_stop(int number) {
  asked_at_ = Clock::now();
  asked_by_ = number;
  // Ranks that start have nothing to save, and do not know yet that they may be asked.
  const bool started = !desk_.has_starting_rank() && (desk_.has_heard_any() || !has_own_ranks());
  asked_ranks_ = spec_.ranks_stop_by_themselves && started;
  if (asked_ranks_) {
    ::kill(mpiexec_, SIGUSR1);
    return;
  }
  end_ranks();
}

/// A job that already ends, for a signal or a failure, is left to that.
bool LaunchedJob::may_run_out_of_time() const {
  return spec_.ends_at && !time_is_over_ && !asked_at_ && !end_at_;
}

void LaunchedJob::end_in_time() {
  if (!may_run_out_of_time() || Clock::now() < *spec_.ends_at) return;
  time_is_over_ = true;
  end_ranks();
}

void LaunchedJob::end_ranks() {
  interrupted_ = true;
  end_after(kGraceOfInterrupt, "");
  ::kill(mpiexec_, SIGTERM);
}

void LaunchedJob::force() {
  interrupted_ = true;
  end_at_.reset();
  end_after(asked_ranks_ ? kGraceOfForce : milliseconds{0}, "");
  if (asked_ranks_) ::kill(mpiexec_, SIGUSR1);
  supervise();
}

/// The pipes of mpiexec may break while it cleans up: what guardians say is printed here.
void LaunchedJob::relay() {
  for (const std::string& report : desk_.hear()) {
    if (interrupted_ || said_) continue;  // nobody died, or for the cause that was said first
    stderr_.say(printable(report));
    cause_ = first_cause(report);
    said_ = true;
    end_after(kGraceOfMpiexec, "");
  }
  for (const StepNews& news : desk_.take_steps())
    if (spec_.on_step) spec_.on_step(news);
}

void LaunchedJob::say(const std::string& cause) {
  if (said_ || interrupted_ || cause.empty()) return;
  said_ = true;
  cause_ = printable(cause);
  stderr_.say(printable(fmt::format("{}{}\n", kBeforeCause, cause)));
}

void LaunchedJob::pass_on_output() {
  stdout_.pass_on();
  if (!stdout_.loss().empty() && !std::exchange(stdout_lost_, true)) {
    stderr_.say(fmt::format(
        "meshplan: warning: standard output cannot be written: {}; the job goes on without it\n",
        stdout_.loss()));
    if (spec_.on_lost_output) spec_.on_lost_output("standard output", stdout_.loss());
  }
  stderr_.pass_on();
  if (!stderr_.loss().empty() && !std::exchange(stderr_lost_, true) && spec_.on_lost_output)
    spec_.on_lost_output("standard error", stderr_.loss());
}

/// mpiexec has ended. Who reads slowly is waited for, but not against a signal.
void LaunchedJob::finish_output() {
  pass_on_output();
  while (stdout_.holds_text() || stderr_.holds_text()) {
    wait_for_something();
    while (const auto signal = signals_.next())
      if (signal->ssi_signo != SIGCHLD && request_complete_) return;
    note_age_of_request();
    pass_on_output();
  }
}

/// That a helper (ssh) was started for; nullptr for a proxy on this machine.
const HostSlots* LaunchedJob::host_behind(int helper) const {
  const std::string name = name_of(helper);
  if (name == kProxyName) return nullptr;
  const std::vector<std::string> arguments = arguments_of_process(helper);
  for (const HostSlots& host : spec_.hosts)
    if (std::ranges::find(arguments, host.name) != arguments.end()) return &host;
  // One that has ended has no arguments any more: it was for the only other machine, if it was more
  // than mpiexec's own copy.
  if (!arguments.empty() || name == name_of(mpiexec_)) return nullptr;
  const HostSlots* other = nullptr;
  for (const HostSlots& host : spec_.hosts) {
    if (is_this_machine(host.name)) continue;
    if (other != nullptr) return nullptr;
    other = &host;
  }
  return other;
}

std::string LaunchedJob::what_is(int helper, const HostSlots* host) {
  if (host != nullptr)
    return fmt::format("host '{}' could not be reached or was lost: its {} (pid {}) has ended",
                       host->name, name_of(helper), helper);
  return fmt::format("mpiexec's {} on this machine (pid {}) has ended", name_of(helper), helper);
}

void LaunchedJob::find_helpers() {
  const auto name_or_none = [](const HostSlots* host) { return host ? host->name : std::string(); };
  if (Clock::now() - started_ > kTimeToStart) return;
  for (const int child : children_of(mpiexec_)) {
    const HostSlots* host = host_behind(child);
    const auto known =
        std::ranges::find(helpers_, child, [](const Helper& one) { return one.process.pid(); });
    if (known == helpers_.end())
      helpers_.push_back({ProcessWatch(child), what_is(child, host), name_or_none(host)});
    else if (!known->process.ended()) {  // it may have been mpiexec's own copy before
      known->what = what_is(child, host);
      known->host = name_or_none(host);
    }
  }
}

void LaunchedJob::supervise() {
  for (Helper& helper : helpers_)
    if (helper.process.ended() && exit_status_of(helper.process.pid()) > 0) {
      end_after(kGraceOfMpiexec, helper.what);
      if (!helper.host.empty() && std::ranges::find(lost_hosts_, helper.host) == lost_hosts_.end())
        lost_hosts_.push_back(helper.host);
    }
  if (desk_.rank_failed() || !desk_.lost().empty()) end_after(kGraceOfMpiexec, "");
  const double now_s = running_clock_.now_s();
  if (!desk_.misses_guardian()) guarded_s_ = now_s;
  if (now_s - guarded_s_ > kTimeUnguardedS)
    end_after(milliseconds{0}, "the guardians of ranks on this machine have ended or were stopped");
  if (desk_.interrupted()) end_after(kGraceOfInterrupt, "");
  if (!end_at_ || Clock::now() < *end_at_ || forced_) return;
  // Lost ranks are named only now: on a busy machine some say their first word long after one is
  // lost.
  say(cause_at_end_.empty() ? cause_of_loss() : cause_at_end_);
  forced_ = true;
  ::kill(mpiexec_, SIGKILL);  // its proxies see that, on every host, and end their ranks
  desk_.end_stopped_guardians();
}

void LaunchedJob::end_after(milliseconds grace, const std::string& cause) {
  if (end_at_) return;
  end_at_ = Clock::now() + grace;
  cause_at_end_ = cause;
}

std::optional<int> LaunchedJob::status_of_mpiexec() const {
  int status = 0;
  return ::waitpid(mpiexec_, &status, WNOHANG) == mpiexec_ ? std::optional(status) : std::nullopt;
}

bool LaunchedJob::has_own_ranks() const {
  const auto is_here = [](const HostSlots& host) { return is_this_machine(host.name); };
  return spec_.hosts.empty() || std::ranges::any_of(spec_.hosts, is_here);
}

bool LaunchedJob::leads_here() const {
  return spec_.hosts.empty() || is_this_machine(spec_.hosts.front().name);
}

/// Why ranks were lost that nobody watched yet; empty if one has said why.
std::string LaunchedJob::cause_of_loss() const {
  constexpr std::size_t kMost = 4;
  if (desk_.rank_failed() || desk_.lost().empty()) return {};
  std::vector<std::string> ranks;
  const auto is_here = [](const HostSlots& host) { return is_this_machine(host.name); };
  if (std::ranges::all_of(spec_.hosts, is_here))
    for (int rank = 0; rank < spec_.ranks; ++rank)
      if (!desk_.has_heard(rank))
        ranks.push_back(fmt::format("rank {}, before its first word", rank));
  for (const LauncherDesk::LostRank& lost : desk_.lost())
    ranks.push_back(fmt::format("rank {} (pid {}), {}", lost.rank, lost.pid, lost.doing));
  const std::size_t more = ranks.size() > kMost ? ranks.size() - kMost : 0;
  ranks.resize(ranks.size() - more);
  const std::string kills = memory_kills_.since_start();
  return fmt::format("died during start-up{}: {}{}{}",
                     ranks.size() > 1 ? " (one of them first)" : "", fmt::join(ranks, " | "),
                     more > 0 ? fmt::format(" | and {} more", more) : "",
                     kills.empty() ? kills : "; " + kills);
}

/// MPICH 4.2's mpiexec gives up by itself when a host cannot be reached, takes along the ranks that
/// wait for it, and says so by an exit code that no rank has. Empty if this is not what happened.
std::string LaunchedJob::unreached_host(int status) const {
  constexpr int kGivesUp = 255;
  const bool starts = desk_.has_starting_rank() || !desk_.lost().empty() || !desk_.has_heard_any();
  if (!starts || !WIFEXITED(status) || WEXITSTATUS(status) != kGivesUp) return {};
  std::vector<std::string> reached;
  for (const Helper& helper : helpers_)
    if (!helper.host.empty()) reached.push_back(helper.what);
  return reached.size() > 1 ? fmt::format("one of these: {}", fmt::join(reached, " | "))
                            : fmt::format("{}", fmt::join(reached, ""));
}

/// A rank that a signal ends before its program runs leaves no trace but mpiexec's exit code.
std::string LaunchedJob::unheard_cause(int status, const std::string& how) const {
  constexpr std::string_view kBefore = "before any rank of this machine had said a word";
  constexpr int kFirst = 4;  // less is an exit code of our own
  constexpr int kLast = 31;
  constexpr int kCoreDumped = 0x80;
  const int number = WIFEXITED(status) ? WEXITSTATUS(status) & ~kCoreDumped : 0;
  if (number < kFirst || number > kLast)
    return fmt::format("mpiexec ended with {} {}", how, kBefore);
  const std::string kills = memory_kills_.since_start();
  const std::string who =
      spec_.ranks == 1
          ? fmt::format("rank 0 was ended by signal {} ({})", number, strsignal(number))
          : fmt::format(
                "a rank was ended by a signal (mpiexec ended with {}, the numbers of its "
                "ranks' signals or-ed)",
                how);
  return fmt::format("died during start-up: {}, {}{}{}", who, kBefore, kills.empty() ? "" : "; ",
                     kills);
}

/// Why the job has ended if nobody has said so; empty if somebody has.
std::string LaunchedJob::silent_cause(int status) const {
  if (said_ || forced_ || desk_.rank_failed()) return {};
  const std::string how = WIFSIGNALED(status) ? fmt::format("signal {} ({})", WTERMSIG(status),
                                                            strsignal(WTERMSIG(status)))
                                              : fmt::format("exit code {}", WEXITSTATUS(status));
  std::string ended = fmt::format("its launcher, mpiexec (pid {}), was ended by {}", mpiexec_, how);
  const bool broken_pipe = WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE;  // others left first
  if (WIFSIGNALED(status) && !broken_pipe) return ended;
  if (std::string host = unreached_host(status); !host.empty()) return host;
  if (!desk_.lost().empty()) return cause_of_loss();
  if (WIFEXITED(status) && is_ours(WEXITSTATUS(status))) return {};
  if (!desk_.has_heard_any() && has_own_ranks()) return unheard_cause(status, how);
  return broken_pipe ? ended : std::string();  // else a rank has said why
}

bool LaunchedJob::is_interruption(int status, int code) const {
  if (interrupted_ || desk_.interrupted() || desk_.stopped_run()) return true;
  if (said_ || forced_ || desk_.rank_failed()) return false;
  // mpiexec forgot the ranks' exit codes in 2 of 10 runs that it had passed a signal to. Rank 0
  // says that it has stopped, if it can; else it was done before.
  if (asked_at_) return code != 0 || !leads_here();
  return is_ended_by_request(status, spec_.ranks);
}

Interruption LaunchedJob::interruption() const {
  Interruption made{.signal = asked_by_, .forced = interrupted_ && asked_ranks_};
  if (const std::optional<StoppedRun>& run = desk_.stopped_run()) {
    if (made.signal == 0 || made.signal == SIGUSR1) made.signal = run->signal;
    made.run = run;
    made.forced = false;
  }
  return made;
}

std::vector<int> LaunchedJob::processes_here() const {
  return processes_with_variable(fmt::format("{}={}", kReportSocketVariable, desk_.name()));
}

/// A proxy that loses mpiexec while MPI starts waits for its ranks, and they in MPI_Init for it,
/// for ever: seen where SIGTERM met a start on a busy machine.
void LaunchedJob::kill_processes_here() {
  const auto until = Clock::now() + kGraceOfForce;
  for (auto left = processes_here(); !left.empty() && Clock::now() < until;
       left = processes_here()) {
    for (const int pid : left) ::kill(pid, SIGKILL);
    wait_for_something();
  }
}

JobEnd LaunchedJob::end_of_job(int code) const {
  JobEnd end{.code = code,
             .by_signal = (code == kInterrupted && !wished_) || asked_by_ != 0,
             .as_wished = wished_ && asked_by_ == 0 && desk_.stopped_run().has_value(),
             .stopped = desk_.stopped_run(),
             .lost_ranks = desk_.named(),
             .lost_hosts = lost_hosts_,
             .cause = cause_};
  if (end.lost_ranks.empty() && !desk_.lost().empty() && !desk_.rank_failed())
    end.lost_ranks.push_back(desk_.lost().front().rank);
  return end;
}

JobEnd LaunchedJob::conclude(int status) {
  spec_.ends_at.reset();
  int code = WIFEXITED(status) && is_ours(WEXITSTATUS(status)) ? WEXITSTATUS(status) : 1;
  if (code == 0 && (said_ || forced_)) code = 1;
  const auto until = Clock::now() + (code == 0 ? milliseconds{0} : kGraceOfRanks);
  const auto first_word_until = Clock::now() + kGraceOfReport;
  const auto waits = [&] {
    if (Clock::now() > until) return false;
    return desk_.has_callers() ||
           (!said_ && !interrupted_ && !desk_.stopped_run() && Clock::now() < first_word_until) ||
           !processes_here().empty();
  };
  relay();
  while (code != 0 && waits()) {
    wait_for_something();
    pass_signals();
    relay();
    pass_on_output();
  }
  if (code != 0) kill_processes_here();
  if (is_interruption(status, code)) {
    code = time_is_over_ && !asked_at_ ? kTimeIsOver : kInterrupted;
    if (spec_.describe && code == kInterrupted && !(wished_ && asked_by_ == 0))
      stderr_.say(printable(spec_.describe(interruption())));
  } else if (code != 0) {
    say(silent_cause(status));
  }
  if (code != 0) remove_orphaned_shared_memory(started_wall_s_);
  finish_output();
  return end_of_job(code);
}

}  // namespace meshplan::runtime
