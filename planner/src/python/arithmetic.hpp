// Python's arithmetic of numbers.
#pragma once

#include <optional>
#include <string>

#include "python/value.hpp"

namespace meshplan::planner::python {

/// Absent where no number comes of it: other kinds of values, division by zero, numbers that do
/// not fit.
std::optional<Value> computed(const Value& left, const std::string& symbol, const Value& right);

}  // namespace meshplan::planner::python
