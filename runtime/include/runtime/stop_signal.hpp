#pragma once

#include <csignal>

namespace meshplan::runtime {

/// While it lives, SIGTERM and SIGUSR1 (what the launcher makes of SIGTERM, for mpiexec passes that
/// on to every rank) ask for a stop instead of ending the process. A second one ends it. One at a
/// time in a process.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;

 private:
  struct sigaction before_term_ {};
  struct sigaction before_user_ {};
};

}  // namespace meshplan::runtime
