#pragma once

#include <optional>

#include "runtime/guard/status_board.hpp"
#include "runtime/os/end_signal_handlers.hpp"

namespace meshplan::runtime {

/// While it lives, a rank that SIGINT, SIGTERM, SIGHUP or SIGUSR1 ends leaves
/// RankState::Interrupted in its slot: nobody must take that for a death. Then what handled the
/// signal before does its work, or the process ends with 130. (mpiexec passes all on; what it kills
/// for another rank's death gets SIGKILL.) One at a time in a process.
class InterruptMark {
 public:
  explicit InterruptMark(StatusSlot& slot);
  ~InterruptMark();
  InterruptMark(const InterruptMark&) = delete;
  InterruptMark& operator=(const InterruptMark&) = delete;

 private:
  std::optional<EndSignalHandlers> handlers_;
};

}  // namespace meshplan::runtime
