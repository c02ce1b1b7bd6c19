#include "os/core_watch.hpp"

#include <algorithm>
#include <ctime>
#include <sys/resource.h>

namespace meshplan::runtime {
namespace {

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Involuntary context switches of this thread; 0 where the kernel does not count them.
long interruptions() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

CoreWatch::CoreWatch() : thread_s_(thread_seconds()), interruptions_(interruptions()) {}

double CoreWatch::lost_s(double wall_s) const {
  const double computed = thread_seconds() - thread_s_;
  return interruptions() > interruptions_ ? std::max(0.0, wall_s - computed) : 0.0;
}

}  // namespace meshplan::runtime
