// The slow, obvious form of every operation, in fp64, straight from its definition. Nothing here
// shares code with what it checks, except for the plain structs that name shapes and kinds.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace meshplan::reference {

/// A contiguous row-major matrix.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::int64_t num_rows, std::int64_t num_columns)
      : rows(num_rows),
        columns(num_columns),
        values(static_cast<std::size_t>(num_rows * num_columns)) {}

  double& operator()(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  double operator()(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

/// Uniform values in [-scale, scale]; the same seed gives the same matrix everywhere.
Matrix random_matrix(std::int64_t rows, std::int64_t columns, std::uint32_t seed,
                     double scale = 1.0);

Matrix absolute(Matrix x);

/// Columns [begin, begin + count).
Matrix slice_columns(const Matrix& x, std::int64_t begin, std::int64_t count);

/// d sum(weights * f(x)) / dx by central differences: checks a hand-written backward against its
/// forward.
Matrix finite_difference(const std::function<Matrix(const Matrix&)>& f, const Matrix& x,
                         const Matrix& weights);

}  // namespace meshplan::reference
