// What a rank sends in a step, by level, group and operation.
#pragma once

#include <string>

#include "reports/simulation_report.hpp"

namespace meshplan::reports {

/// A table. @param report  with its traffic
std::string communication_text(const SimulationReport& report);
/// to_json(report), with "communication" beside the rest.
std::string json_with_communication(const SimulationReport& report);

}  // namespace meshplan::reports
