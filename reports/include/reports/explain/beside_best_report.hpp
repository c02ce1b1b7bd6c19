// What `meshplan plan` says of its first plan beside the search: other plans, each played beside
// it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/explain/explanation.hpp"
#include "planner/explain/why_not.hpp"

namespace meshplan::reports {

struct BesideBest {
  planner::TimedPlan best;
  planner::ThumbStanding thumb = {};
  std::optional<planner::WhyNot> why_not = {};             // if asked for
  std::vector<planner::TurningPoint> turning_points = {};  // of #2, if asked for
};

/// Starts with an empty line.
std::string to_text(const BesideBest& beside, double memory_reserve);

}  // namespace meshplan::reports
