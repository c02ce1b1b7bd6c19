#pragma once

#include <string>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::reports {

/// What a plan does, a sentence each, for readers who do not know its abbreviations.
std::vector<std::string> plan_in_words(const program::Plan& plan);

}  // namespace meshplan::reports
