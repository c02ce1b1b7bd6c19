// What saving costs a run, as `meshplan simulate --checkpoint-every --memory-every` shows it.
#pragma once

#include <string>

#include "core/json_fields.hpp"
#include "planner/failures/saving.hpp"

namespace meshplan::reports {

/// A line for what is saved, and two for each place that is saved to.
std::string to_text(const planner::SavingPrediction& saving);

/// The key "saving" of a simulation's JSON.
Json saving_json(const planner::SavingPrediction& saving);

}  // namespace meshplan::reports
