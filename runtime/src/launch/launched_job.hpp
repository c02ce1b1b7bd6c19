// mpiexec as a child: its signals, its end, and the ends that it does not notice.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include "launch/launcher_line.hpp"
#include "launch/output_relay.hpp"
#include "os/blocked_signals.hpp"
#include "os/out_of_memory.hpp"
#include "os/process_watch.hpp"
#include "os/running_clock.hpp"
#include "runtime/launch/launch.hpp"

namespace meshplan::runtime {

/// One call of launch_ranks(). mpiexec dies with this process (and MPI's proxies with mpiexec, the
/// ranks with their proxy). It ends the job where mpiexec would wait for ever: for a host that it
/// cannot reach, for a proxy that was killed, for a rank that left before it had met the others.
class LaunchedJob {
 public:
  /// @throws IoError if mpiexec cannot be started
  explicit LaunchedJob(const LaunchSpec& spec);
  JobEnd run();

 private:
  using Clock = std::chrono::steady_clock;
  /// What mpiexec has started: a proxy, or the ssh to a host.
  struct Helper {
    ProcessWatch process;
    std::string what;
    std::string host;  // that it reaches, as the launch names it; empty: this machine's proxy
  };

  void wait_for_something();
  void pass_signals();
  void note_age_of_request();
  void ask_to_stop(int number);
  void stop_if_wished();
  void force();
  bool may_run_out_of_time() const;
  void end_in_time();
  void end_ranks();  // at once, by mpiexec
  void pass_on_output();
  void finish_output();
  void relay();
  void find_helpers();
  void supervise();
  std::optional<int> status_of_mpiexec() const;
  void end_after(std::chrono::milliseconds grace, const std::string& cause);
  JobEnd conclude(int status);
  JobEnd end_of_job(int code) const;
  std::vector<int> processes_here() const;  // ranks and guardians
  void kill_processes_here();
  bool is_interruption(int status, int code) const;
  Interruption interruption() const;
  std::string silent_cause(int status) const;
  std::string unheard_cause(int status, const std::string& how) const;
  std::string unreached_host(int status) const;
  bool has_own_ranks() const;  // on this machine
  bool leads_here() const;     // rank 0 is on this machine
  std::string cause_of_loss() const;
  const HostSlots* host_behind(int helper) const;
  /// @param host  that the helper was started for; nullptr for this machine's proxy
  static std::string what_is(int helper, const HostSlots* host);
  void say(const std::string& cause);

  LauncherDesk desk_;
  BlockedSignals signals_;
  LaunchSpec spec_;
  OutputRelay stdout_{STDOUT_FILENO};
  OutputRelay stderr_{STDERR_FILENO};
  OutOfMemoryKills memory_kills_;
  Clock::time_point started_ = Clock::now();
  RunningClock running_clock_;
  double guarded_s_ = 0;  // by it: no guardian was missed then
  std::int64_t started_wall_s_ = 0;
  int mpiexec_ = 0;
  std::vector<Helper> helpers_;
  std::optional<Clock::time_point> end_at_;  // by force
  std::string cause_at_end_;
  std::string cause_;  // as it was said
  std::vector<std::string> lost_hosts_;
  bool wished_ = false;                        // LaunchSpec::wants_stop asked for the end
  std::optional<Clock::time_point> asked_at_;  // to stop, by a signal to this process
  int asked_by_ = 0;                           // that signal
  bool request_complete_ = false;              // what comes from now on is a second one
  bool asked_ranks_ = false;                   // they stop by themselves
  bool interrupted_ = false;                   // and end at once
  bool time_is_over_ = false;
  bool forced_ = false;
  bool said_ = false;  // why the job ends
  bool stdout_lost_ = false;
  bool stderr_lost_ = false;
};

}  // namespace meshplan::runtime
