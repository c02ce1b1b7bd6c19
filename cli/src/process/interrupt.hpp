// Ctrl-C as a request, where what was found so far is worth having.
#pragma once

#include <csignal>

namespace meshplan::cli {

/// While it lives, the first SIGINT asks for an end instead of ending the process; a second one
/// does what it did before. One at a time in a process.
class InterruptRequest {
 public:
  InterruptRequest();
  ~InterruptRequest();
  InterruptRequest(const InterruptRequest&) = delete;
  InterruptRequest& operator=(const InterruptRequest&) = delete;

  /// From any thread.
  bool made() const;

 private:
  struct sigaction before_ {};
};

}  // namespace meshplan::cli
