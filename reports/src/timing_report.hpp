#pragma once

#include <string>

#include "program/trace/step_report.hpp"

namespace meshplan::reports {

/// Phases, communication, the slowest buckets, and balance: several tables under one another.
std::string to_text(const program::StepTiming& timing);

}  // namespace meshplan::reports
