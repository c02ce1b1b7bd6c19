// Where what a rank holds of a parameter lies in the whole one.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>

#include "program/shard_layout.hpp"

namespace meshplan::runtime {

/// Of the whole parameter.
inline std::int64_t global_elements(const program::Parameter& parameter) {
  return std::accumulate(parameter.global_shape.begin(), parameter.global_shape.end(),
                         std::int64_t{1}, std::multiplies<>());
}

/// Calls `at(global element, local element)` for all that a piece holds of a parameter.
template <class Function>
void for_each_element(const program::Parameter& parameter, const program::MatrixPiece& piece,
                      Function at) {
  const std::int64_t columns =
      parameter.global_shape.size() > 1 ? parameter.global_shape.back() : 1;
  for (std::int64_t row = 0; row < piece.rows; ++row)
    for (std::int64_t column = 0; column < piece.columns; ++column)
      at((piece.global_row + row) * columns + piece.global_column + column,
         piece.local_offset + row * piece.local_stride + column);
}

}  // namespace meshplan::runtime
