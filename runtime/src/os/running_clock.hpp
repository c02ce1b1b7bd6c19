#pragma once

#include <cstdint>

namespace meshplan::runtime {

/// Seconds for which this process has been running: it stands still while the process is stopped or
/// frozen, or its machine suspended. Who judges others by it has seen them for so long. Read it at
/// least once in kLongestGap: what lies between two readings counts as so much at most.
class RunningClock {
 public:
  static constexpr double kLongestGap = 1.0;

  double now_s();

 private:
  std::int64_t last_ns_ = 0;
  double running_s_ = 0;
};

}  // namespace meshplan::runtime
