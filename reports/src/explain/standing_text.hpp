// A standing over a plan in words, for all reports that give one.
#pragma once

#include <string>

#include "planner/explain/standing.hpp"

namespace meshplan::reports {

/// "1.20 s (5.3 %) slower: bubble +1.10 s, exposed dp +102 ms", "breaks a rule: ...", "does not
/// fit:
/// ..."; one line.
/// @param first  what it is compared with
std::string standing_text(const planner::Standing& standing, const planner::TimedPlan& first,
                          double memory_reserve);

/// "activations 41.2 GiB, optimizer state 20.1 GiB, weights 8.3 GiB": the largest parts.
std::string largest_parts(const planner::StageMemoryParts& memory);

}  // namespace meshplan::reports
