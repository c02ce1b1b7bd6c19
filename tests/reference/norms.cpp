#include "reference/norms.hpp"

#include <cmath>

namespace meshplan::reference {

namespace {

struct RowStatistics {
  double mean = 0.0;
  double inv = 0.0;  // 1 / sqrt(mean square of x - mean, + epsilon)
};

RowStatistics statistics(const Matrix& x, std::int64_t row, double epsilon, bool centered) {
  const auto size = static_cast<double>(x.columns);
  RowStatistics result;
  if (centered)
    for (std::int64_t i = 0; i < x.columns; ++i) result.mean += x(row, i) / size;
  double mean_square = 0.0;
  for (std::int64_t i = 0; i < x.columns; ++i)
    mean_square += (x(row, i) - result.mean) * (x(row, i) - result.mean) / size;
  result.inv = 1.0 / std::sqrt(mean_square + epsilon);
  return result;
}

Matrix normalize(const Matrix& x, const Matrix& weight, const Matrix& bias, double epsilon,
                 bool centered) {
  Matrix y(x.rows, x.columns);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const RowStatistics row = statistics(x, t, epsilon, centered);
    for (std::int64_t i = 0; i < x.columns; ++i)
      y(t, i) =
          (x(t, i) - row.mean) * row.inv * weight(0, i) + (bias.values.empty() ? 0.0 : bias(0, i));
  }
  return y;
}

NormGrads normalize_backward(const Matrix& dy, const Matrix& x, const Matrix& weight,
                             double epsilon, bool centered) {
  const auto size = static_cast<double>(x.columns);
  NormGrads grads{Matrix(x.rows, x.columns), Matrix(1, x.columns), Matrix(1, x.columns)};
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const RowStatistics row = statistics(x, t, epsilon, centered);
    double g_mean = 0.0;
    double gn_mean = 0.0;
    for (std::int64_t i = 0; i < x.columns; ++i) {
      const double n = (x(t, i) - row.mean) * row.inv;
      const double g = dy(t, i) * weight(0, i);
      if (centered) g_mean += g / size;
      gn_mean += g * n / size;
      grads.dweight(0, i) += dy(t, i) * n;
      grads.dbias(0, i) += dy(t, i);
    }
    for (std::int64_t i = 0; i < x.columns; ++i) {
      const double n = (x(t, i) - row.mean) * row.inv;
      grads.dx(t, i) = row.inv * (dy(t, i) * weight(0, i) - g_mean - n * gn_mean);
    }
  }
  return grads;
}

}  // namespace

Matrix rms_norm(const Matrix& x, const Matrix& weight, double epsilon) {
  return normalize(x, weight, {}, epsilon, false);
}
NormGrads rms_norm_backward(const Matrix& dy, const Matrix& x, const Matrix& weight,
                            double epsilon) {
  return normalize_backward(dy, x, weight, epsilon, false);
}
Matrix layer_norm(const Matrix& x, const Matrix& weight, const Matrix& bias, double epsilon) {
  return normalize(x, weight, bias, epsilon, true);
}
NormGrads layer_norm_backward(const Matrix& dy, const Matrix& x, const Matrix& weight,
                              double epsilon) {
  return normalize_backward(dy, x, weight, epsilon, true);
}

}  // namespace meshplan::reference
