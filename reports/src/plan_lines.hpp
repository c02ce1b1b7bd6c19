// Lines that reports of one plan share.
#pragma once

#include <string>

#include "program/plan/plan.hpp"
#include "reports/table.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/step_prediction.hpp"

namespace meshplan::reports {

/// Model, cluster, step and plan, a line each.
std::string plan_header(const program::Plan& plan, const sim::Cluster& cluster);

/// That another training stack runs the plan.
std::string software_line(const std::string& software);

/// What the planner keeps free for what nobody plans: "keeps the reserve of 4 %".
/// @param reserve  part of the device
std::string reserve_verdict(double peak, double usable, double reserve);

/// Seconds of a step by category, those without any left out, and their shares.
Table times_table(const sim::StepPrediction& step);

/// "fits: 60 GiB of 79 GiB on stage 0; keeps the reserve of 4 %", a line.
/// @param fits  as who predicted it says
std::string memory_verdict(const sim::StepPrediction& step, bool fits, double reserve);

}  // namespace meshplan::reports
