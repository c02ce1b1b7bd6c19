#pragma once

#include <csignal>
#include <optional>
#include <sys/signalfd.h>

namespace meshplan::runtime {

/// Blocks the signals that a launcher passes on, and SIGCHLD, and reads them from a descriptor. The
/// child gets the mask from before.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  const sigset_t& before() const { return before_; }
  int descriptor() const { return descriptor_; }
  std::optional<signalfd_siginfo> next() const;

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

}  // namespace meshplan::runtime
