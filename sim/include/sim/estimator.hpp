// Step time and memory of a plan without building its programs: one small program per block key is
// lowered, priced and remembered; stages are sums of blocks, and the schedule is solved on tasks.
// Where nothing contends the step time equals the engine's within kEstimatorTolerance; on shared
// cores within kSharedCoresTolerance (both are tests).
#pragma once

#include <memory>
#include <string>

#include "program/plan.hpp"
#include "sim/breakdown.hpp"
#include "sim/cluster.hpp"

namespace meshplan::sim {

constexpr double kEstimatorTolerance = 0.03;
constexpr double kSharedCoresTolerance = 0.15;

struct Estimate {
  double step_time_s = 0;
  Breakdown seconds;  // of the slowest stage; sums to step_time_s
  double peak_memory_bytes = 0;
  int largest_stage = 0;
  double capacity_bytes = 0;
  double mfu = 0;  // model FLOPs over ranks * peak of the plan's precision
  bool fits() const { return peak_memory_bytes <= capacity_bytes; }
};

/// Remembers block prices between calls, so keep one per search and thread.
class Estimator {
 public:
  explicit Estimator(Cluster cluster);
  ~Estimator();
  Estimator(Estimator&&) noexcept;
  Estimator& operator=(Estimator&&) noexcept;

  /// @param plan  must satisfy program::check. @throws ConfigError if its ranks are not the
  /// cluster's
  Estimate estimate(const program::Plan& plan);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace meshplan::sim
