// Searches side by side: over numbers of devices, over memory; and a whole run in hours and money.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/objectives/sweeps.hpp"
#include "planner/objectives/training_run.hpp"

namespace meshplan::reports {

/// "3.6 M steps, 52.1 days, 0.42 M GPU hours, ...": one line.
/// The list price that a run's money rests on, if nobody gave one; else empty.
std::string assumed_price_text(const planner::TrainingRunQuestion& question);
std::string training_run_text(const planner::TrainingRunAnswer& answer);

/// @param run  of each point too, if a whole run is asked for
std::string to_text(const planner::DeviceSweep& sweep,
                    const std::optional<planner::TrainingRunQuestion>& run);
std::string to_json(const planner::DeviceSweep& sweep,
                    const std::optional<planner::TrainingRunQuestion>& run);

std::string frontier_text(const std::vector<planner::RankedPlan>& frontier);
std::string frontier_json(const std::vector<planner::RankedPlan>& frontier);

/// @param what  "tokens", "layers"
std::string largest_text(const planner::LargestThatFits& largest, const std::string& what);
std::string largest_json(const planner::LargestThatFits& largest, const std::string& what);

}  // namespace meshplan::reports
