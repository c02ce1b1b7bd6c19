// Step time and memory of a plan without building its programs: one small program per block key is
// lowered, priced and remembered; stages are sums of blocks, and the schedule is solved on tasks.
// Where nothing contends the step time equals the engine's within kEstimatorTolerance; on shared
// cores within kSharedCoresTolerance (both are tests).
#pragma once

#include <memory>
#include <string_view>

#include "program/plan/plan.hpp"
#include "sim/anchors/adjustment.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/step_prediction.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::sim {

constexpr double kEstimatorTolerance = 0.03;
constexpr double kSharedCoresTolerance = 0.15;

/// Remembers block prices between calls, so keep one per search and thread.
class Estimator {
 public:
  /// @param software  of all plans that are estimated: Stack::software
  /// @param adjustment  of plans of other software, which are then priced in full before any is
  /// told to be slow; null: none
  /// @throws ConfigError for unknown software, with the nearest known one
  explicit Estimator(Cluster cluster, std::string_view software = kOwnSoftware,
                     std::shared_ptr<const Adjustment> adjustment = nullptr);
  ~Estimator();
  Estimator(Estimator&& other) noexcept;
  Estimator& operator=(Estimator&& other) noexcept;

  /// @param plan  must satisfy program::check. @throws ConfigError if its ranks are not the
  /// cluster's
  /// @param wanted  where a plan turns out not to be, its schedule is not solved: the answer has
  /// its memory and what it takes at least
  /// @returns seconds of the slowest stage
  StepPrediction estimate(const program::Plan& plan, const Wanted& wanted = {});

 private:
  struct State;
  std::unique_ptr<State> state_;  // null of other software
  struct Other;
  std::unique_ptr<Other> other_;
};

}  // namespace meshplan::sim
