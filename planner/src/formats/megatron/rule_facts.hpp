// What flags say that Megatron-LM's validity rules ask about (planner/rules/megatron-lm.json).
#pragma once

#include <string>
#include <vector>

#include "formats/megatron/reading.hpp"
#include "planner/rules/rules.hpp"

namespace meshplan::planner::megatron {

/// By the names of the rules' settings: a flag's without dashes. Where a switch is not given the
/// script has said so: 0. Experts are cut as the rest is where it says nothing else.
Facts rule_facts(const std::vector<Argument>& arguments, const program::ParallelConfig& parallel);

/// What Megatron-LM would refuse of the plan as it is written, a message each.
std::vector<std::string> refusals(const program::Plan& plan);

}  // namespace meshplan::planner::megatron
