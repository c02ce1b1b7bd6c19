#pragma once

#include <optional>

#include "planner/search/search.hpp"
#include "sim/engine/prediction_terms.hpp"

namespace meshplan::reports {

/// Of the step time of a plan that was played or is of other software; an estimate of ours has
/// none.
inline std::optional<sim::Interval> interval_of(const planner::RankedPlan& ranked) {
  const sim::StepPrediction& step = ranked.step();
  if (!ranked.simulated && step.relative_sigma > 0)
    return sim::interval_of(step.relative_sigma, step.step_time_s);
  if (!ranked.simulated) return std::nullopt;
  return sim::interval_of(ranked.simulated->terms, ranked.step_time_s());
}

}  // namespace meshplan::reports
