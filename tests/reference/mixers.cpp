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

namespace {

/// A head of a row with length 1.
std::vector<double> unit_head(const Matrix& x, std::int64_t row, std::int64_t first,
                              std::int64_t size) {
  double squares = 1e-6;
  for (std::int64_t e = 0; e < size; ++e) squares += x(row, first + e) * x(row, first + e);
  std::vector<double> unit;
  for (std::int64_t e = 0; e < size; ++e) unit.push_back(x(row, first + e) / std::sqrt(squares));
  return unit;
}

/// One step of a value head whose state is the rows [first, first + Ek) of `state`.
void delta_step(const kernels::GatedDeltaShape& shape, const GatedDeltaInputs& in, std::int64_t t,
                std::int64_t head, Matrix& state, std::int64_t first, Matrix& o) {
  const auto keys = static_cast<std::size_t>(shape.key_size);
  const std::int64_t key_head = head / (shape.value_heads / shape.key_heads);
  const auto q = unit_head(in.qkv, t, key_head * shape.key_size, shape.key_size);
  const auto k =
      unit_head(in.qkv, t, (shape.key_heads + key_head) * shape.key_size, shape.key_size);
  const std::int64_t v = 2 * shape.key_heads * shape.key_size + head * shape.value_size;
  const double beta = 1.0 / (1.0 + std::exp(-in.ba(t, head)));
  const double a = in.ba(t, shape.value_heads + head) + in.dt_bias(0, head);
  const double softplus = std::fmax(a, 0.0) + std::log1p(std::exp(-std::fabs(a)));
  const bool begins = !in.positions.empty() && in.positions[static_cast<std::size_t>(t)] == 0;
  const double decay = begins ? 0.0 : std::exp(-std::exp(in.a_log(0, head)) * softplus);
  for (std::int64_t j = 0; j < shape.value_size; ++j) {
    double of_key = 0.0;
    for (std::size_t e = 0; e < keys; ++e) {
      double& element = state(first + static_cast<std::int64_t>(e), j);
      element *= decay;
      of_key += element * k[e];
    }
    double sum = 0.0;
    for (std::size_t e = 0; e < keys; ++e) {
      double& element = state(first + static_cast<std::int64_t>(e), j);
      element += k[e] * beta * (in.qkv(t, v + j) - of_key);
      sum += element * q[e];
    }
    o(t, head * shape.value_size + j) = sum / std::sqrt(static_cast<double>(shape.key_size));
  }
}

}  // namespace

GatedDeltaOutputs gated_delta(const kernels::GatedDeltaShape& shape,
                              const GatedDeltaInputs& inputs) {
  const std::int64_t states = shape.num_sequences * shape.value_heads;
  GatedDeltaOutputs out{Matrix(shape.tokens(), shape.value_columns()), inputs.initial_state};
  if (out.final_state.values.empty())
    out.final_state = Matrix(states * shape.key_size, shape.value_size);
  for (std::int64_t t = 0; t < shape.tokens(); ++t)
    for (std::int64_t head = 0; head < shape.value_heads; ++head)
      delta_step(shape, inputs, t, head, out.final_state,
                 (t / shape.seq_len * shape.value_heads + head) * shape.key_size, out.o);
  return out;
}

}  // namespace meshplan::reference
