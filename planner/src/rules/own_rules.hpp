// The rules of our own runtime in the form of other stacks' rules.
#pragma once

#include <vector>

#include "planner/rules/rules.hpp"

namespace meshplan::planner {

/// program::check, which says what a plan breaks, as a judgement of each of its rules. Rules that
/// it did not come to, because others are broken, are undecidable.
std::vector<Judgement> judge_own(const RuleSet& rules, const program::Plan& plan);

}  // namespace meshplan::planner
