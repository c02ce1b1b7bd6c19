// A signal as a request, where what was found so far is worth having.
#pragma once

#include <csignal>
#include <initializer_list>
#include <utility>
#include <vector>

namespace meshplan::cli {

/// While it lives, the first of these signals asks for an end instead of ending the process; a
/// second one does what it did before. What is ignored stays so: who ignores a hang-up (nohup)
/// wants to outlive it. One at a time in a process. A job of ranks that runs meanwhile takes the
/// signal itself, and says so by its exit code.
class InterruptRequest {
 public:
  explicit InterruptRequest(std::initializer_list<int> signals = {SIGINT});
  ~InterruptRequest();
  InterruptRequest(const InterruptRequest&) = delete;
  InterruptRequest& operator=(const InterruptRequest&) = delete;

  /// From any thread.
  bool made() const;

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace meshplan::cli
