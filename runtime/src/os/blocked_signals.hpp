#pragma once

#include <csignal>
#include <optional>
#include <sys/signalfd.h>

namespace meshplan::runtime {

/// Blocks the signals that a launcher passes on, and SIGCHLD, and reads them from a descriptor. A
/// hang-up that was ignored (nohup) stays so: blocked, it would come through. SIGPIPE is ignored,
/// for who writes sees the error. The child gets what was before.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  /// In the child, before it becomes another program. Async-signal-safe.
  void undo_in_child() const;
  bool ignores_hangup() const { return ignores_hangup_; }
  int descriptor() const { return descriptor_; }
  std::optional<signalfd_siginfo> next() const;

 private:
  sigset_t before_{};
  struct sigaction before_pipe_ {};
  bool ignores_hangup_ = false;
  int descriptor_ = -1;
};

}  // namespace meshplan::runtime
