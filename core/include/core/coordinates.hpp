// Elements of dense tensors by their coordinates.
#pragma once

#include <cstdint>
#include <vector>

namespace meshplan {

/// Coordinates of an element of a dense tensor, whose last axis is contiguous.
inline std::vector<std::int64_t> coordinates_of(std::int64_t element,
                                                const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> coordinates(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0; element /= shape[axis])
    coordinates[axis] = element % shape[axis];
  return coordinates;
}

}  // namespace meshplan
