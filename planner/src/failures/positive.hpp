// Numbers that options and assumptions give.
#pragma once

#include <cmath>
#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::planner {

/// @throws ConfigError for a number that is not finite and more than 0, or at least 0
inline void require_positive(const char* name, double value, bool zero_too = false) {
  if (std::isfinite(value) && (value > 0 || (zero_too && value == 0))) return;
  throw ConfigError(
      fmt::format("{} = {:g} must be {} 0", name, value, zero_too ? "at least" : "more than"));
}

}  // namespace meshplan::planner
