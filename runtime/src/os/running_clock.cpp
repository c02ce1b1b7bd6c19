#include "os/running_clock.hpp"

#include <algorithm>
#include <ctime>

namespace meshplan::runtime {

double RunningClock::now_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  if (last_ns_ != 0)
    running_s_ += std::min(static_cast<double>(now_ns - last_ns_) * 1e-9, kLongestGap);
  last_ns_ = now_ns;
  return running_s_;
}

}  // namespace meshplan::runtime
