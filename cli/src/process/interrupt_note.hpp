#pragma once

#include <csignal>

namespace meshplan::cli {

/// While it lives, the first SIGINT, SIGTERM or SIGHUP is noted instead of ending the process, so
/// that what was found so far can be said; a second one ends it as before. One at a time. A job of
/// ranks that runs meanwhile takes the signal itself, and says so by its exit code.
class InterruptNote {
 public:
  InterruptNote();
  ~InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

  bool was_interrupted() const;

 private:
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
  struct sigaction before_hangup_ {};
};

}  // namespace meshplan::cli
