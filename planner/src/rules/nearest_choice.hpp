// Which value of a rule's fact would do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/rules/rules.hpp"

namespace meshplan::planner {

/// Facts of a rule set as a list, for conditions that are asked again and again.
struct FactList {
  std::vector<std::string> names;
  std::vector<std::optional<std::int64_t>> values;
};

/// How far a fact is varied.
constexpr std::int64_t kFarthestChoice = 4096;

/// Varies the fact of a failed rule (Rule::nearest) upwards and downwards until the rule and all
/// others that would have it changed hold. Of values that are equally near the smaller one; a value
/// under which no rule breaks that held before one under which some do.
/// @returns absent if there is none within kFarthestChoice, or the fact is not known
std::optional<NearestChoice> nearest_choice(const RuleSet& rules, const BoundRules& bound,
                                            std::size_t failed, FactList facts);

}  // namespace meshplan::planner
