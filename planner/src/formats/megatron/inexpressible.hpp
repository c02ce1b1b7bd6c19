// What a plan asks for that Megatron-LM has no words for.
#pragma once

#include <string>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::planner::megatron {

/// Questions of words alone; what Megatron-LM then refuses are its rules' (rule_facts.hpp).
/// A line each: the field, its value, what Megatron-LM has instead, the nearest that it has. Empty:
/// the plan can be written.
std::vector<std::string> inexpressible(const program::Plan& plan);

}  // namespace meshplan::planner::megatron
