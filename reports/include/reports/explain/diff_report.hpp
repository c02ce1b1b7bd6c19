// What `meshplan diff` shows: two plans side by side.
#pragma once

#include <string>

#include "planner/explain/comparison.hpp"

namespace meshplan::reports {

std::string to_text(const planner::ComparedPlans& compared);
std::string to_json(const planner::ComparedPlans& compared);

/// "B is 2.00 s faster: 1.92 s more than the 80.0 ms below which it would be a tie"; a line, and
/// one before it for each plan that does not fit.
std::string verdict_text(const planner::ComparedPlans& compared);

}  // namespace meshplan::reports
