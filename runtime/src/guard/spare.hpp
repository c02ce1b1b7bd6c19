// The second process that guards a machine: it does nothing but watch the first, and takes its
// place. Each of the two replaces the other when it is lost.
#pragma once

#include <atomic>
#include <csignal>
#include <string>

#include "guard/guardian.hpp"
#include "os/process_watch.hpp"

namespace meshplan::runtime {

/// Who guards a machine, in the memory that its ranks share with both.
struct alignas(64) GuardPost {
  std::atomic<int> guardian{0};  // process; 0: none yet
  std::atomic<int> spare{0};
  std::atomic<bool> loss_said{false};  // by a rank, that both are lost
};

/// What one of a machine's guardians or ranks sees of a guardian.
class GuardianWatch {
 public:
  /// @param patience_s  a guardian that a signal has stopped for longer is lost
  GuardianWatch(int pid, double patience_s) : process_(pid), patience_s_(patience_s) {}

  int pid() const { return process_.pid(); }
  int descriptor() const { return process_.descriptor(); }
  /// Looks now. "has ended" or "was stopped by a signal"; empty while it does its work, and while a
  /// debugger holds it. @param now_s  of a RunningClock
  std::string loss(double now_s);
  /// SIGKILL, which ends what is stopped, too.
  void end() const { process_.signal(SIGKILL); }

 private:
  ProcessWatch process_;
  double patience_s_;
  double stopped_since_s_ = -1;
};

/// How often the two look around, at least.
constexpr int kGuardianTickMs = 200;
/// For what one guardian does to the other: long enough that no `kill -STOP` to all of a job,
/// process by process, is taken for a loss.
constexpr double kPatienceWithGuardian = 3.0;

/// Forks a process that watches this one, the guardian, and takes its place when it is lost.
/// @returns its number; -1 if it cannot be had, errno says why
int start_spare(const GuardianConfig& config);

/// A line of one of the two about the other, while the job goes on.
void say_beside_job(const GuardianConfig& config, const std::string& text);

}  // namespace meshplan::runtime
