// Numbers as a certificate can hold them.
#pragma once

#include <cmath>
#include <optional>

#include "core/limits.hpp"

namespace meshplan::program {

/// 0 below the least number of a file, none above its largest one.
inline std::optional<double> file_number(double value) {
  if (std::abs(value) < 1 / limits::kMagnitude) return 0;
  const bool fits = std::isfinite(value) && std::abs(value) <= limits::kMagnitude;
  return fits ? std::optional(value) : std::nullopt;
}

}  // namespace meshplan::program
