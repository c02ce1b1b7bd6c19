// Whether a degree lies within a search's bounds.
#pragma once

#include <optional>

#include "planner/search/space.hpp"

namespace meshplan::planner {

/// @param degree  which one the value is of; its pin is not looked at
bool is_within(int value, const Constraints& constraints,
               std::optional<int> DegreeBounds::*degree);

}  // namespace meshplan::planner
