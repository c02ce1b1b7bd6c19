// What `meshplan why-not` shows: a changed plan beside the given one, and what keeps it back.
#pragma once

#include <string>

#include "planner/explain/why_not.hpp"

namespace meshplan::reports {

/// @param first  the plan that was changed
/// @param memory_reserve  part of each device that was to stay free
std::string to_text(const planner::WhyNot& answer, const planner::TimedPlan& first,
                    double memory_reserve);
std::string to_json(const planner::WhyNot& answer, const planner::TimedPlan& first);

}  // namespace meshplan::reports
