// What measured plans say about the cost model: which terms were off, and by how much.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "planner/tune/tuning.hpp"
#include "sim/engine/breakdown.hpp"

namespace meshplan::planner {

/// A term of a step's breakdown, mean over the measured plans and their ranks.
struct TermError {
  std::string_view name;  // "forward", "exposed tp"
  double predicted_s = 0;
  double measured_s = 0;
  double off_s() const { return measured_s - predicted_s; }
};

/// Terms with time in them, the one that was off most first.
/// @param predicted, measured  of the same plans, aligned
std::vector<TermError> terms_off(std::span<const sim::Breakdown> predicted,
                                 std::span<const sim::Breakdown> measured);

/// Mean of |predicted / measured - 1| over the plans that have run; absent if none has.
struct PredictionErrors {
  double before = 0;  // by the cluster as it was
  double after = 0;   // by the refined one, times what measurements and predictions have in common
  int plans = 0;
};
std::optional<PredictionErrors> prediction_errors(const std::vector<TuneCandidate>& candidates);

}  // namespace meshplan::planner
