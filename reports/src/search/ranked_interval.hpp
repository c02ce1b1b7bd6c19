#pragma once

#include <optional>

#include "planner/search/search.hpp"
#include "sim/engine/prediction_terms.hpp"

namespace meshplan::reports {

/// Of the step time of a plan that was played; an estimate has none.
inline std::optional<sim::Interval> interval_of(const planner::RankedPlan& ranked) {
  if (!ranked.simulated) return std::nullopt;
  return sim::interval_of(ranked.simulated->terms, ranked.step_time_s());
}

}  // namespace meshplan::reports
