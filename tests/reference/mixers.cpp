#include "reference/mixers.hpp"

#include <cmath>

namespace meshplan::reference {

namespace {

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

}  // namespace

Matrix short_convolution(const kernels::ShortConvolutionShape& shape, const Matrix& x,
                         const Matrix& weight, const Matrix& bias,
                         const std::vector<std::int32_t>& positions) {
  Matrix y(x.rows, x.columns);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      double sum = bias.values.empty() ? 0.0 : bias(0, c);
      // Back from the token itself to the beginning of its sequence or document.
      for (std::int64_t d = 0; d < shape.taps; ++d) {
        sum += weight(c, shape.taps - 1 - d) * x(t - d, c);
        if ((t - d) % shape.seq_len == 0) break;
        if (!positions.empty() && positions[static_cast<std::size_t>(t - d)] == 0) break;
      }
      y(t, c) = shape.silu ? silu(sum) : sum;
    }
  }
  return y;
}

Matrix gated_rms_norm(const kernels::GatedRmsNormShape& shape, const Matrix& x, const Matrix& z,
                      const Matrix& weight, double epsilon) {
  const bool gate_first = shape.order == kernels::GateOrder::GateThenNorm;
  Matrix y(x.rows, x.columns);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t first = 0; first < x.columns; first += shape.size) {
      double squares = 0.0;
      for (std::int64_t i = first; i < first + shape.size; ++i) {
        y(t, i) = x(t, i) * (gate_first ? silu(z(t, i)) : 1.0);
        squares += y(t, i) * y(t, i);
      }
      const double rms = std::sqrt(squares / static_cast<double>(shape.size) + epsilon);
      for (std::int64_t i = first; i < first + shape.size; ++i)
        y(t, i) *= weight(0, shape.shared_weight ? i - first : i) / rms *
                   (gate_first ? 1.0 : silu(z(t, i)));
    }
  }
  return y;
}

}  // namespace meshplan::reference
