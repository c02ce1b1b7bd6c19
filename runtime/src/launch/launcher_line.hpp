// What ranks and guardians tell the launcher on their machine (launch.hpp), and how it listens.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/launch/launch.hpp"

namespace meshplan::runtime {

/// Exit code of a rank, and of a job, that a signal has ended: 128 + SIGINT.
inline constexpr int kInterrupted = 130;

struct LauncherMessage {
  enum class Kind : std::int32_t {
    Rank,         // a rank, as soon as its program runs: its number, text: what it does now
    Watched,      // that rank: a guardian watches it from now on
    Failed,       // that rank: it has printed why it ends
    Guardian,     // a guardian; `rank`: its machine
    Leaves,       // that guardian: its work is done
    Interrupted,  // a guardian, or a rank: a signal ends a rank; no failure
    Report,       // a guardian, text: why the job ends
    Stopped,      // rank 0, by a line of its own: a StoppedRun
    Lost,         // a guardian, before its report: `rank` is one that the job ends for
    Step,         // rank 0, by a line of its own: a StepNews
  };
  Kind kind = Kind::Rank;
  std::int32_t rank = 0;
  std::int64_t said_ns = 0;  // by this machine's monotonic clock
  std::string text;
};

/// The end of a rank or guardian. Without a launcher on this machine it says nothing to nobody.
class LauncherLine {
 public:
  /// To the launcher that listens on this name; unconnected if it is empty or nobody does.
  explicit LauncherLine(const std::string& name);
  ~LauncherLine();
  LauncherLine(const LauncherLine&) = delete;
  LauncherLine& operator=(const LauncherLine&) = delete;

  bool is_connected() const { return socket_ >= 0; }
  /// Readable (poll) once the launcher has ended, for it never writes. -1: unconnected.
  int socket() const { return socket_; }
  /// @returns false if nobody hears it any more
  bool say(LauncherMessage::Kind kind, int rank, const std::string& text = "") const;
  /// Has the launcher ended?
  bool lost();
  /// The launcher's process; 0 if unconnected.
  int launcher() const { return launcher_; }
  void hang_up();

 private:
  int socket_ = -1;
  int launcher_ = 0;
};

/// The line of this process, a rank whose launcher is named by kReportSocketVariable.
LauncherLine& launcher_line();

/// The launcher's end. It hears only processes of its own user.
class LauncherDesk {
 public:
  /// A rank that is gone before a guardian watched it and without a word.
  struct LostRank {
    int rank = 0;
    int pid = 0;
    std::string doing;
  };

  /// @throws IoError
  LauncherDesk();
  ~LauncherDesk();
  LauncherDesk(const LauncherDesk&) = delete;
  LauncherDesk& operator=(const LauncherDesk&) = delete;

  const std::string& name() const { return name_; }
  /// Descriptors to poll for input.
  std::vector<int> descriptors() const;
  /// Takes in all that has arrived. @returns new reports, in the order in which they were said
  std::vector<std::string> hear();

  bool has_callers() const { return !callers_.empty(); }  // now: ranks that start, guardians
  bool has_starting_rank() const;
  const std::vector<LostRank>& lost() const { return lost_; }  // in the order noticed
  bool has_heard(int rank) const { return heard_.contains(rank); }
  bool has_heard_any() const { return !heard_.empty(); }
  bool rank_failed() const { return rank_failed_; }  // and has said why
  bool interrupted() const { return interrupted_; }
  /// A guardian has hung up before its work was done, or is stopped, and no other has taken its
  /// place yet.
  bool misses_guardian() const;
  /// By SIGKILL. They hold the pipes of mpiexec, which waits until these are closed.
  void end_stopped_guardians() const;
  const std::optional<StoppedRun>& stopped_run() const { return stopped_run_; }
  /// Ranks that guardians end the job for, in the order in which they were named.
  const std::vector<int>& named() const { return named_; }
  /// The steps that rank 0 has spoken of since the last call.
  std::vector<StepNews> take_steps() { return std::exchange(steps_, {}); }

 private:
  struct Caller {
    int socket = -1;
    int pid = 0;
    std::optional<int> guarded_machine;  // of a guardian
    bool is_rank = false;
    int rank = 0;
    std::string doing;
    bool is_stopped_guardian() const;
  };
  using Reports = std::multimap<std::int64_t, std::string>;  // by the time they were said
  void read_all(Reports& reports);
  void take(Caller& caller, const LauncherMessage& message, Reports& reports);
  /// @returns false once it has hung up
  bool read(Caller& caller, Reports& reports);

  std::string name_;
  int listener_ = -1;
  std::vector<Caller> callers_;
  std::vector<LostRank> lost_;
  std::set<int> heard_;
  std::set<int> unguarded_;  // machines
  bool rank_failed_ = false;
  bool interrupted_ = false;
  std::optional<StoppedRun> stopped_run_;
  std::vector<int> named_;
  std::vector<StepNews> steps_;
};

}  // namespace meshplan::runtime
