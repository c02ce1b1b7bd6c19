// What `meshplan diff` shows: two plans side by side.
#pragma once

#include <string>

#include "planner/explain/comparison.hpp"

namespace meshplan::reports {

std::string to_text(const planner::ComparedPlans& compared);
std::string to_json(const planner::ComparedPlans& compared);

}  // namespace meshplan::reports
