// What `meshplan explain` shows: the way from the model's FLOPs to the step time, what the
// cluster's figures do to it, and other plans beside it.
#pragma once

#include <string>

#include "planner/explain/explanation.hpp"

namespace meshplan::reports {

std::string to_text(const planner::Explanation& explanation, const planner::PricedOn& on);
std::string to_json(const planner::Explanation& explanation);

/// "rule of thumb  tp8 sp pp2 dp8 mbs1 zero1: 1.20 s (5.3 %) slower: bubble +1.10 s, ..."
std::string thumb_line(const planner::ThumbStanding& thumb, const planner::TimedPlan& first,
                       double memory_reserve);

/// Where another plan would be as fast: a line for each figure that has such a point, and one for
/// all that have none.
/// @param rival  what the other plan is called: "#2"
std::string turning_points_text(const std::vector<planner::TurningPoint>& points,
                                const std::string& rival);

}  // namespace meshplan::reports
