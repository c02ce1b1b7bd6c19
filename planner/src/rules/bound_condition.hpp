// A rule's condition as instructions over the places of a list of facts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/rules/rules.hpp"
#include "rules/expression.hpp"
#include "rules/vocabulary.hpp"

namespace meshplan::planner {

/// What must hold, with what it is about: "(when) implies (requires)".
std::string condition_of(const Rule& rule);

/// Names become places in `facts`; those that are not there are Missing.
std::vector<Step> with_places(const Expression& expression, std::span<const std::string> facts);

Verdict verdict_of(const Outcome& outcome);

}  // namespace meshplan::planner
