// Ends the whole job, with the first cause named, when a rank dies or hangs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/units.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/job_layout.hpp"
#include "runtime/guard/status_board.hpp"

namespace meshplan::runtime {

class GuardianLifeline;
class InterruptMark;

struct WatchdogOptions {
  /// A rank that is stopped for so long, or a job in which no rank shows progress for so long,
  /// hangs. Longer than the longest single operation.
  Seconds hang_timeout{60.0};
  /// Who prints the message: the launcher that listens on this local socket (launch.hpp passes its
  /// name to the ranks). If empty, or on another machine: standard error. Under mpiexec that is a
  /// pipe to a launcher that may break while it cleans up.
  std::string report_socket;
};

/// Watches all ranks from a process of its own on each machine (a "guardian"), which no launcher
/// knows: it sees a death within milliseconds, needs no MPI in the ranks, and lives on when the
/// launcher kills them. On the first death or hang it writes one message to standard error, ends
/// every rank of its machine (also stopped ones), and has the other machines do the same. Guardians
/// of several machines talk TCP, to the one of rank 0. A second process (spare.hpp) takes a
/// guardian's place; when both are lost, the ranks end the job (guardian_lifeline.hpp).
///
/// Create it right after MPI has started, before large memory is allocated (the guardian is forked
/// from the lowest rank of each machine); destroy it when the rank's work is done.
class Watchdog {
 public:
  /// Called by all ranks of the job at once.
  /// @throws IoError if shared memory or a socket cannot be had
  Watchdog(Communicator& world, const JobLayout& layout, const WatchdogOptions& options);
  /// From here on this rank may end. While an exception unwinds: it will report the error itself,
  /// and the guardian only makes sure that the whole job ends.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  StatusBoard& board() { return *board_; }

 private:
  class SharedPage;
  std::unique_ptr<SharedPage> page_;
  StatusSlot* slot_ = nullptr;
  std::unique_ptr<GuardianLifeline> lifeline_;
  std::optional<StatusBoard> board_;
  std::unique_ptr<InterruptMark> interrupt_mark_;
};

// ---------------------------------------------------------------- the rules, as values

/// A rank as its guardian sees it.
struct RankView {
  int rank = 0;
  std::string host;
  int pid = 0;
  RankState state = RankState::Starting;
  int awaited_rank = -1;  // while Waiting; -1 = a group
  Seconds since_progress;
  std::optional<Seconds> stopped;  // by a signal, for so long
  bool traced = false;             // a debugger holds it
  bool gone = false;               // its process has ended
  std::string status;
};

/// "rank 2 on host-b (pid 41): stage 1, micro-batch 3; waiting for rank 1, 12.3 s without progress"
std::string describe(const RankView& view);

/// The rank to blame for a hang, if there is one: a rank that was stopped for `timeout`; or, when
/// no unfinished rank has shown progress for `timeout`, one that is stopped, else the one that does
/// not wait and is stuck longest (if all wait, the one that waits longest: a deadlock); or, when
/// all have finished, the same of those whose processes have not ended `timeout` later. Nothing
/// hangs while a debugger holds a rank.
struct Hang {
  enum class Kind { Stopped, Stuck, Deadlock };
  Kind kind = Kind::Stuck;
  int rank = 0;
};
std::optional<Hang> find_hang(std::span<const RankView> ranks, Seconds timeout);

}  // namespace meshplan::runtime
