#pragma once

#include <csignal>
#include <cstddef>
#include <vector>

namespace meshplan::runtime {

/// While it lives, SIGTERM and SIGUSR1 (what the launcher makes of SIGTERM, for mpiexec passes that
/// on to every rank) ask for a stop instead of ending the process. A second one ends it. One at a
/// time in a process, on the process's first thread, which the kernel prefers for signals.
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
  stack_t before_stack_{};
  std::vector<std::byte> stack_;
};

}  // namespace meshplan::runtime
