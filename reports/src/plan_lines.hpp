// Lines that reports of one plan share.
#pragma once

#include <string>

#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::reports {

/// Model, cluster, step and plan, a line each.
std::string plan_header(const program::Plan& plan, const sim::Cluster& cluster);

/// That another training stack runs the plan.
std::string software_line(const std::string& software);

/// What the planner keeps free for what nobody plans: "keeps the reserve of 4 %".
/// @param reserve  part of the device
std::string reserve_verdict(double peak, double usable, double reserve);

}  // namespace meshplan::reports
