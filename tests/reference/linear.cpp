#include "reference/linear.hpp"

namespace meshplan::reference {

Matrix linear(const Matrix& x, const Matrix& weight, const Matrix& bias) {
  Matrix y(x.rows, weight.rows);
  for (std::int64_t t = 0; t < y.rows; ++t) {
    for (std::int64_t o = 0; o < y.columns; ++o) {
      double sum = bias.values.empty() ? 0.0 : bias(0, o);
      for (std::int64_t i = 0; i < x.columns; ++i) sum += x(t, i) * weight(o, i);
      y(t, o) = sum;
    }
  }
  return y;
}

Matrix linear_input_grad(const Matrix& dy, const Matrix& weight) {
  Matrix dx(dy.rows, weight.columns);
  for (std::int64_t t = 0; t < dx.rows; ++t)
    for (std::int64_t i = 0; i < dx.columns; ++i)
      for (std::int64_t o = 0; o < dy.columns; ++o) dx(t, i) += dy(t, o) * weight(o, i);
  return dx;
}

Matrix linear_weight_grad(const Matrix& dy, const Matrix& x) {
  Matrix dweight(dy.columns, x.columns);
  for (std::int64_t o = 0; o < dweight.rows; ++o)
    for (std::int64_t i = 0; i < dweight.columns; ++i)
      for (std::int64_t t = 0; t < x.rows; ++t) dweight(o, i) += dy(t, o) * x(t, i);
  return dweight;
}

Matrix column_sums(const Matrix& dy) {
  Matrix sums(1, dy.columns);
  for (std::int64_t t = 0; t < dy.rows; ++t)
    for (std::int64_t o = 0; o < dy.columns; ++o) sums(0, o) += dy(t, o);
  return sums;
}

}  // namespace meshplan::reference
