// What a plan asks for that Megatron-LM has no words for.
#pragma once

#include <string>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::planner::megatron {

/// A line each: the field, its value, what Megatron-LM has instead, the nearest that it has. Empty:
/// the plan can be written.
std::vector<std::string> inexpressible(const program::Plan& plan);

}  // namespace meshplan::planner::megatron
