// Starts the ranks of a job: the command line of MPICH's mpiexec, and its run as a child.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::runtime {

/// `slots` ranks go to this host before the next one is used.
struct HostSlots {
  std::string name;
  int slots = 1;
  bool is_limit = false;  // the number was given: this host takes no more ranks
  bool operator==(const HostSlots&) const = default;
};

/// "host-a:4,host-b"; hosts without a number share the ranks in turns. @throws ConfigError
std::vector<HostSlots> parse_host_list(std::string_view list);

/// Lines "host", "host:4" or "host slots=4"; '#' starts a comment. @throws ConfigError with file,
/// line
std::vector<HostSlots> parse_hostfile(std::string_view text, std::string_view file);

/// Ranks that the hosts take, whether or not they have cores for them; nothing where some host has
/// no number, or there are no hosts: any.
std::optional<int> most_ranks(const std::vector<HostSlots>& hosts);
/// @throws ConfigError if the hosts take fewer ranks: names hosts, slots, ranks, and what to write
void require_slots(const std::vector<HostSlots>& hosts, int ranks);
/// Ranks on the host that gets most of them; names of this machine count as one host.
int ranks_on_fullest_host(const std::vector<HostSlots>& hosts, int ranks);

/// Does this name mean the machine that this process runs on?
bool is_this_machine(const std::string& host);

/// Whether a host can be reached now: this machine always, others where ssh does within 3 s. Where
/// another program starts the ranks (HYDRA_LAUNCHER, Slurm) nobody is asked.
bool host_answers(const std::string& host);

/// Asks the resolver for every name, a few seconds at most: mpiexec would wait for ever for a host
/// that does not exist. What only ssh knows (an alias, a host behind a proxy) is left to ssh.
/// @throws ConfigError for a name that nobody knows, IoError if the resolver fails; it is named
void require_known_hosts(const std::vector<HostSlots>& hosts);

/// A run that has ended after a step because a signal asked for it.
struct StoppedRun {
  int signal = 0;  // that a rank got; SIGUSR1 if only the launcher did
  int last_step = 0;
  bool saved = false;
};

/// A rank's first word to its launcher, if there is one: who never says it has died before.
void greet_launcher();

/// Tells the launcher of this rank, if there is one, that it has said why it ends.
void tell_launcher_of_failure();

/// Tells the launcher of this rank. @returns false if there is none on this machine
bool tell_launcher(const StoppedRun& run);

/// Tells the launcher of this rank, if there is one, that a signal ends it before it was watched.
/// Async-signal-safe.
void tell_launcher_of_interrupt() noexcept;

/// How signals have ended a job.
struct Interruption {
  int signal = 0;                 // the first; 0: unknown
  std::optional<StoppedRun> run;  // what rank 0 says of it, if it stopped after a step
  bool forced = false;            // by a second signal
};

/// What launch_ranks returns for a job that LaunchSpec::ends_at has ended; 124 as of timeout(1).
inline constexpr int kTimeIsOver = 124;

/// A step that a run has done.
struct StepNews {
  int step = 0;           // counted from the start of the run
  double seconds = 0;     // that it took
  int slow_rank = -1;     // that is slow beside its peers; -1 = none
  double slow_times = 1;  // as long as its peers
};

class LauncherLine;

/// Tells the launcher of rank 0 how far the run is. It stays silent where the launcher is on
/// another machine, or where there is none.
class StepLine {
 public:
  StepLine();
  ~StepLine();
  StepLine(const StepLine&) = delete;
  StepLine& operator=(const StepLine&) = delete;

  void say(const StepNews& news) const;

 private:
  std::unique_ptr<LauncherLine> line_;
};

/// How a job has ended, for whoever starts the next one.
struct JobEnd {
  int code = 0;                       // see launch_ranks
  bool by_signal = false;             // to this process, to a rank or to mpiexec
  bool as_wished = false;             // LaunchSpec::wants_stop asked for it, and it stopped
  std::optional<StoppedRun> stopped;  // rank 0 stopped after a step and says so
  std::vector<int> lost_ranks;        // that died or hung first, or whose machine was lost
  std::vector<std::string>
      lost_hosts;     // of LaunchSpec::hosts, that could not be reached or were lost
  std::string cause;  // one line; empty where a rank has printed its own
};

struct LaunchSpec {
  int ranks = 1;
  std::vector<HostSlots> hosts;  // empty: this machine
  int cores_per_host = 1;        // of the smallest host; ranks are bound if they all get a core
  int cores_per_rank = 1;        // wanted: with a progress thread, 2
  bool bind_to_cores = true;
  std::vector<std::string> environment;  // NAME=VALUE, set for every rank
  std::vector<std::string> command;      // program and arguments, the same for all ranks
  std::string mpiexec = "mpiexec";
  // The first SIGTERM, SIGINT or SIGHUP reaches the ranks as SIGUSR1, which mpiexec passes on: they
  // stop by themselves (StopSignal).
  bool ranks_stop_by_themselves = false;
  // When the job is ended as if a signal had come, and without a word.
  std::optional<std::chrono::steady_clock::time_point> ends_at = std::nullopt;
  // Lines to print when signals have ended the job; null: none.
  std::function<std::string(const Interruption&)> describe = nullptr;
  // Asked again and again while the ranks run; once it returns true, they are asked to stop after
  // their step, and the job ends without a word. null: never.
  std::function<bool()> wants_stop = nullptr;
  // Called for every step that rank 0 has done, soon after it; null: nobody listens.
  std::function<void(const StepNews&)> on_step = nullptr;
  // Called once for "standard output" or "standard error", and why it takes nothing any more.
  std::function<void(std::string_view stream, std::string_view cause)> on_lost_output = nullptr;
};

/// The command line of mpiexec. Ranks are bound to cores where no host gets more ranks than cores,
/// else left free: several ranks bound to one core could not use another that idles. Where there
/// are cores to spare, but fewer than ranks would like, they are left free, too. Hosts that are
/// all this machine, under whatever names, are started without ssh.
/// @throws ConfigError if ranks < 1, the command is empty, or a variable is not NAME=VALUE
std::vector<std::string> mpiexec_command(const LaunchSpec& spec);

/// Set where this process is itself a rank that mpiexec or srun started: then launch nothing.
struct OuterLaunch {
  std::string launcher;  // "mpiexec" or "srun"
  int rank = 0;
  int size = 1;
  bool operator==(const OuterLaunch&) const = default;
};
using EnvironmentLookup = std::function<const char*(const char*)>;  // std::getenv
std::optional<OuterLaunch> detect_outer_launch(const EnvironmentLookup& environment);

/// The variable by which launch_ranks tells the ranks where to report a failure
/// (WatchdogOptions::report_socket).
constexpr const char* kReportSocketVariable = "MESHPLAN_REPORT_SOCKET";

/// Set for ranks that are to outlive a hang-up (nohup): mpiexec ignores it in any case.
constexpr const char* kIgnoreHangupVariable = "MESHPLAN_IGNORE_HANGUP";

/// Runs mpiexec_command(spec) in a session of its own, without input, and waits for its end. The
/// first SIGINT, SIGTERM or SIGHUP to this process asks the ranks to stop, a second one ends them
/// at once. Output goes by way of this process: a stream that fails is given up and the job goes
/// on. Prints why the job ends where no rank can. When this process ends, however it ends, so do
/// mpiexec and all ranks. A host that does not answer within 8 s, a proxy that was killed and a
/// rank that leaves before it has met the others end the job within seconds, although mpiexec would
/// wait for them.
/// @returns the job's exit code: 0, 1, 2, 3 or 130 as the ranks gave it (130 also after SIGINT,
/// SIGTERM and SIGHUP), kTimeIsOver if `ends_at` came first, and 1 for any other end. @throws
/// IoError if mpiexec cannot be started
int launch_ranks(const LaunchSpec& spec);
/// The same, with what a supervisor needs to go on. @throws as launch_ranks
JobEnd run_job(const LaunchSpec& spec);

}  // namespace meshplan::runtime
