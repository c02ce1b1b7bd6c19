// What the kernel takes of a thread's core while something is timed.
#pragma once

namespace meshplan::runtime {

/// From its construction on, of the calling thread.
class CoreWatch {
 public:
  CoreWatch();
  /// Seconds in which the thread could have run and did not, of `wall_s` that passed: what it did
  /// not compute, if the kernel interrupted it at all. A thread that waits gives its core away
  /// itself, which says nothing.
  double lost_s(double wall_s) const;

 private:
  double thread_s_ = 0;
  long interruptions_ = 0;
};

}  // namespace meshplan::runtime
