// What `meshplan strategies` shows: the layouts of the textbooks for one model, side by side.
#pragma once

#include <string>
#include <vector>

#include "planner/scaling/strategies.hpp"

namespace meshplan::reports {

struct StrategiesReport {
  planner::SearchRequest request;
  std::vector<planner::StrategyRow> rows;
};

/// Tables of at most 100 columns.
std::string to_text(const StrategiesReport& report);
std::string to_json(const StrategiesReport& report);
std::string strategies_schema();

}  // namespace meshplan::reports
