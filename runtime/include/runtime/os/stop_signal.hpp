#pragma once

#include <chrono>

#include "runtime/os/end_signal_handlers.hpp"

namespace meshplan::runtime {

/// Signals that come so soon after the first are one request with it.
constexpr std::chrono::milliseconds kOneRequest{300};

/// While it lives, SIGTERM, SIGINT and SIGHUP ask for a stop instead of ending the process, and so
/// does SIGUSR1, by which the launcher passes their request on. A second one ends it. One action of
/// a user reaches a rank on several ways at once (`pkill` hits the rank and its mpiexec, which
/// passes the signal on; `timeout` signals twice): what comes from the launcher, from the parent
/// and from others is counted apart, and what comes within kOneRequest of the first of its way
/// belongs to it. SIGHUP that was ignored (nohup) stays so. One at a time in a process, on its
/// first thread, which the kernel prefers for signals.
class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const { return number() != 0; }
  /// The signal that asked; 0: none has. SIGUSR1 if only the launcher has: it knows which.
  int number() const;

 private:
  EndSignalHandlers handlers_;
};

}  // namespace meshplan::runtime
