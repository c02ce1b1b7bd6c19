#include "reference/pointwise.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

namespace meshplan::reference {

using kernels::ActivationKind;

namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
/// Argument of the tanh in the approximation: sqrt(2 / pi) (x + 0.044715 x^3)
double gelu_argument(double x) {
  return std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}

}  // namespace

double activation(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::Silu:
      return x * sigmoid(x);
    case ActivationKind::Gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::GeluTanh:
      return 0.5 * x * (1.0 + std::tanh(gelu_argument(x)));
    case ActivationKind::SquaredRelu:
      return x > 0.0 ? x * x : 0.0;
    case ActivationKind::Relu:
      return x > 0.0 ? x : 0.0;
    case ActivationKind::ClampedSilu:
      return std::min(x, 7.0) * sigmoid(1.702 * std::min(x, 7.0));
    case ActivationKind::Tanh:
      return std::tanh(x);
  }
  return 0.0;
}

double activation_slope(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::Silu:
      return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)));
    case ActivationKind::Gelu:
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
             x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
    case ActivationKind::GeluTanh: {
      const double t = std::tanh(gelu_argument(x));
      return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * std::sqrt(2.0 / std::numbers::pi) *
                                   (1.0 + 3.0 * 0.044715 * x * x);
    }
    case ActivationKind::SquaredRelu:
      return x > 0.0 ? 2.0 * x : 0.0;
    case ActivationKind::Relu:
      return x > 0.0 ? 1.0 : 0.0;
    case ActivationKind::ClampedSilu: {
      const double s = sigmoid(1.702 * x);
      return x <= 7.0 ? s + 1.702 * x * s * (1.0 - s) : 0.0;
    }
    case ActivationKind::Tanh:
      return 1.0 - std::tanh(x) * std::tanh(x);
  }
  return 0.0;
}

namespace {

/// What a gated unit multiplies by.
double gated_factor(ActivationKind kind, double up) {
  return kind == ActivationKind::ClampedSilu ? std::clamp(up, -7.0, 7.0) + 1.0 : up;
}
double gated_factor_slope(ActivationKind kind, double up) {
  return kind == ActivationKind::ClampedSilu && std::fabs(up) > 7.0 ? 0.0 : 1.0;
}

}  // namespace

Matrix gated_activation(ActivationKind kind, const Matrix& x) {
  const std::int64_t size = x.columns / 2;
  Matrix y(x.rows, size);
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t i = 0; i < size; ++i)
      y(t, i) = activation(kind, x(t, i)) * gated_factor(kind, x(t, size + i));
  return y;
}

Matrix gated_activation_backward(ActivationKind kind, const Matrix& dy, const Matrix& x) {
  const std::int64_t size = x.columns / 2;
  Matrix dx(x.rows, x.columns);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t i = 0; i < size; ++i) {
      const double up = x(t, size + i);
      dx(t, i) = dy(t, i) * gated_factor(kind, up) * activation_slope(kind, x(t, i));
      dx(t, size + i) = dy(t, i) * activation(kind, x(t, i)) * gated_factor_slope(kind, up);
    }
  }
  return dx;
}

Matrix rope(const Matrix& x, const std::vector<std::int64_t>& positions, int head_size,
            int rope_size, double base) {
  Matrix y = x;
  const int half = rope_size / 2;
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t head = 0; head < x.columns / head_size; ++head) {
      for (int i = 0; i < half; ++i) {
        const std::int64_t column = head * head_size + i;
        const double angle = static_cast<double>(positions[static_cast<std::size_t>(t)]) *
                             std::pow(base, -2.0 * i / rope_size);
        const std::complex<double> rotated =
            std::complex(x(t, column), x(t, column + half)) * std::polar(1.0, angle);
        y(t, column) = rotated.real();
        y(t, column + half) = rotated.imag();
      }
    }
  }
  return y;
}

}  // namespace meshplan::reference
