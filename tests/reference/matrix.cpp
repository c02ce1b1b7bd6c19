#include "reference/matrix.hpp"

#include <cmath>

namespace meshplan::reference {

Matrix random_matrix(std::int64_t rows, std::int64_t columns, std::uint32_t seed, double scale) {
  Matrix result(rows, columns);
  std::uint64_t state = seed * 2654435769ULL + 88172645463325252ULL;
  for (double& value : result.values) {  // xorshift64 (Marsaglia 2003)
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    value = scale * (2.0 * static_cast<double>(state >> 11) / 9007199254740992.0 - 1.0);
  }
  return result;
}

Matrix absolute(Matrix x) {
  for (double& value : x.values) value = std::fabs(value);
  return x;
}

Matrix slice_columns(const Matrix& x, std::int64_t begin, std::int64_t count) {
  Matrix result(x.rows, count);
  for (std::int64_t row = 0; row < x.rows; ++row)
    for (std::int64_t column = 0; column < count; ++column)
      result(row, column) = x(row, begin + column);
  return result;
}

Matrix finite_difference(const std::function<Matrix(const Matrix&)>& f, const Matrix& x,
                         const Matrix& weights) {
  constexpr double kStep = 1e-5;  // error ~ step^2 + 1e-16 / step
  const auto objective = [&](const Matrix& at) {
    const Matrix y = f(at);
    double sum = 0.0;
    for (std::size_t i = 0; i < y.values.size(); ++i) sum += weights.values[i] * y.values[i];
    return sum;
  };
  Matrix gradient(x.rows, x.columns);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    Matrix moved = x;
    moved.values[i] = x.values[i] + kStep;
    const double above = objective(moved);
    moved.values[i] = x.values[i] - kStep;
    gradient.values[i] = (above - objective(moved)) / (2.0 * kStep);
  }
  return gradient;
}

}  // namespace meshplan::reference
