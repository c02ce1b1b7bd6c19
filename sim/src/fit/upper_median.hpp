// One of the values themselves, as fits take it; core/statistics.hpp has the median between two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace meshplan::sim {

/// The middle value, of an even number the larger of both.
/// @param otherwise  if there is no value
inline double upper_median(std::vector<double> values, double otherwise = 0) {
  if (values.empty()) return otherwise;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace meshplan::sim
