// What is said of plans as JSON, for all reports that say it.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "planner/explain/explanation.hpp"
#include "planner/explain/why_not.hpp"

namespace meshplan::reports {

nlohmann::ordered_json standing_json(const planner::Standing& standing,
                                     const planner::TimedPlan& first);
nlohmann::ordered_json thumb_json(const planner::ThumbStanding& thumb,
                                  const planner::TimedPlan& first);
/// The factor of each figure, or null.
nlohmann::ordered_json turning_points_json(const std::vector<planner::TurningPoint>& points);
nlohmann::ordered_json why_not_json(const planner::WhyNot& answer, const planner::TimedPlan& first);
/// Step time, parts, memory of each stage.
nlohmann::ordered_json priced_json(const planner::PricedPlan& priced);

}  // namespace meshplan::reports
