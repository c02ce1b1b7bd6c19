// What failures cost: lines of a search, and what `meshplan simulate --failures` shows.
#pragma once

#include <string>

#include "planner/failures/failure_study.hpp"

namespace meshplan::reports {

/// "one device in 50,000 h: one of 128 fails every 16.3 days, 0.0614 a day"
std::string failures_text(double device_mtbf_hours, int devices);
/// "goodput 97.1 %, 0.0614 failures a day, a checkpoint every 5.2 min": of the first plan.
std::string goodput_text(const planner::Goodput& goodput);

std::string to_text(const planner::FailureStudy& study);
std::string to_json(const planner::FailureStudy& study);
/// The JSON Schema (draft 2020-12) of that.
std::string failure_study_schema();

}  // namespace meshplan::reports
