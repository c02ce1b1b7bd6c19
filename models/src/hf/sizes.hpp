// Sizes that are computed from numbers of a file. A result beyond an int becomes the nearest int;
// the bounds of a model's fields then refuse it with the field's name.
#pragma once

#include <algorithm>
#include <limits>

namespace meshplan::models {

/// Truncates toward zero.
inline int as_size(double value) {
  using Limits = std::numeric_limits<int>;
  return static_cast<int>(
      std::clamp(value, static_cast<double>(Limits::min()), static_cast<double>(Limits::max())));
}

// A double holds the exact sum of two ints, and the exact product where that is an int.
inline int sum_of_sizes(int a, int b) {
  return as_size(static_cast<double>(a) + b);
}
inline int product_of_sizes(int a, int b) {
  return as_size(static_cast<double>(a) * b);
}
/// `value` rounded up to a multiple of `multiple`, which is positive.
inline int round_up_size(int value, int multiple) {
  const int groups = value / multiple + (value % multiple == 0 ? 0 : 1);
  return product_of_sizes(groups, multiple);
}

}  // namespace meshplan::models
