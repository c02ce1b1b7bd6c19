#include "reference/ssd.hpp"

#include <algorithm>
#include <cmath>

namespace meshplan::reference {

namespace {

SsdInputs with_magnitudes(SsdInputs inputs) {
  inputs.xbc = absolute(inputs.xbc);
  inputs.d = absolute(inputs.d);
  inputs.initial_state = absolute(inputs.initial_state);
  return inputs;
}

/// One head of one sequence.
struct Head {
  const Ssd& ssd;
  const SsdInputs& in;
  std::int64_t sequence;
  std::int64_t head;
  std::int64_t size = ssd.shape.head_size;
  std::int64_t states = ssd.shape.state_size;
  std::int64_t x_column = head * size;
  std::int64_t b_column =
      ssd.shape.columns() + head / (ssd.shape.heads / ssd.shape.groups) * states;
  std::int64_t c_column = b_column + ssd.shape.groups * states;
  double a = -std::exp(in.a_log(0, head));

  std::int64_t row(std::int64_t i) const { return sequence * ssd.shape.seq_len + i; }
  bool begins_document(std::int64_t i) const {
    return !ssd.positions.empty() && ssd.positions[static_cast<std::size_t>(row(i))] == 0;
  }
  double raw(std::int64_t i) const { return in.dt(row(i), head) + in.dt_bias(0, head); }
  double softplus(std::int64_t i) const { return std::log1p(std::exp(raw(i))); }
  double step(std::int64_t i) const {
    return std::clamp(softplus(i), double{ssd.limits.lower}, double{ssd.limits.upper});
  }
  double step_slope(std::int64_t i) const {
    return softplus(i) == step(i) ? 1.0 / (1.0 + std::exp(-raw(i))) : 0.0;
  }
  double decay(std::int64_t i) const { return begins_document(i) ? 0.0 : std::exp(step(i) * a); }
  std::size_t at(std::int64_t p, std::int64_t n) const {
    return static_cast<std::size_t>(p * states + n);
  }
  std::vector<double> initial() const {
    std::vector<double> h(static_cast<std::size_t>(size * states));
    for (std::int64_t p = 0; p < size; ++p)
      for (std::int64_t n = 0; n < states; ++n)
        h[at(p, n)] = in.initial_state(sequence, (x_column + p) * states + n);
    return h;
  }
  void advance(std::vector<double>& h, std::int64_t i) const {
    const double kept = decay(i);
    const double taken = step(i);
    for (std::int64_t p = 0; p < size; ++p)
      for (std::int64_t n = 0; n < states; ++n)
        h[at(p, n)] = kept * h[at(p, n)] +
                      taken * in.xbc(row(i), x_column + p) * in.xbc(row(i), b_column + n);
  }
};

template <class Body>
void for_each_head(const Ssd& ssd, const SsdInputs& inputs, const Body& body) {
  for (std::int64_t sequence = 0; sequence < ssd.shape.num_sequences; ++sequence)
    for (std::int64_t head = 0; head < ssd.shape.heads; ++head)
      body(Head{.ssd = ssd, .in = inputs, .sequence = sequence, .head = head});
}

/// Adds the gradients of token i. @param g  that of the state after it; becomes that before it
void backward_token(const Head& head, std::int64_t i, const Matrix& dy,
                    const std::vector<double>& before, const std::vector<double>& after,
                    std::vector<double>& g, double sign_of_a, SsdInputs& result) {
  const std::int64_t t = head.row(i);
  const double step = head.step(i);
  const double decay = head.decay(i);
  double dstep = 0.0;
  double ddecay = 0.0;  // times decay: with respect to its exponent
  for (std::int64_t p = 0; p < head.size; ++p) {
    const double x = head.in.xbc(t, head.x_column + p);
    const double grad = dy(t, head.x_column + p);
    result.d(0, head.head) += grad * x;
    double& dx = result.xbc(t, head.x_column + p);
    dx += head.in.d(0, head.head) * grad;
    for (std::int64_t n = 0; n < head.states; ++n) {
      double& of_state = g[head.at(p, n)];
      const double b = head.in.xbc(t, head.b_column + n);
      of_state += grad * head.in.xbc(t, head.c_column + n);
      result.xbc(t, head.c_column + n) += grad * after[head.at(p, n)];
      result.xbc(t, head.b_column + n) += of_state * step * x;
      dx += of_state * step * b;
      dstep += of_state * x * b;
      ddecay += of_state * decay * before[head.at(p, n)];
      of_state *= decay;
    }
  }
  dstep += sign_of_a * head.a * ddecay;
  result.a_log(0, head.head) += sign_of_a * head.a * step * ddecay;
  result.dt(t, head.head) += dstep * head.step_slope(i);
  result.dt_bias(0, head.head) += dstep * head.step_slope(i);
}

}  // namespace

SsdOutputs Ssd::forward(const SsdInputs& inputs) const {
  SsdOutputs result{Matrix(shape.tokens(), shape.columns()),
                    Matrix(shape.num_sequences, shape.state_elements())};
  for_each_head(*this, inputs, [&](const Head& head) {
    std::vector<double> h = head.initial();
    for (std::int64_t i = 0; i < shape.seq_len; ++i) {
      const std::int64_t t = head.row(i);
      head.advance(h, i);
      for (std::int64_t p = 0; p < head.size; ++p) {
        double& y = result.y(t, head.x_column + p);
        y = inputs.d(0, head.head) * inputs.xbc(t, head.x_column + p);
        for (std::int64_t n = 0; n < head.states; ++n)
          y += h[head.at(p, n)] * inputs.xbc(t, head.c_column + n);
      }
    }
    for (std::int64_t p = 0; p < head.size; ++p)
      for (std::int64_t n = 0; n < head.states; ++n)
        result.final_state(head.sequence, (head.x_column + p) * head.states + n) = h[head.at(p, n)];
  });
  return result;
}

SsdOutputs Ssd::forward_magnitudes(const SsdInputs& inputs) const {
  return forward(with_magnitudes(inputs));
}

SsdInputs Ssd::backward(const SsdInputs& inputs, const SsdOutputs& gradient,
                        bool magnitudes) const {
  const SsdInputs in = magnitudes ? with_magnitudes(inputs) : inputs;
  const Matrix dy = magnitudes ? absolute(gradient.y) : gradient.y;
  const Matrix dfinal = magnitudes ? absolute(gradient.final_state) : gradient.final_state;
  SsdInputs result{Matrix(in.xbc.rows, in.xbc.columns),
                   Matrix(in.dt.rows, in.dt.columns),
                   Matrix(1, shape.heads),
                   Matrix(1, shape.heads),
                   Matrix(1, shape.heads),
                   Matrix(shape.num_sequences, shape.state_elements())};
  for_each_head(*this, in, [&](const Head& head) {
    std::vector<std::vector<double>> h{head.initial()};
    for (std::int64_t i = 0; i < shape.seq_len; ++i) {
      h.push_back(h.back());
      head.advance(h.back(), i);
    }
    std::vector<double> g(h.front().size());
    const std::int64_t first = head.x_column * head.states;
    for (std::size_t k = 0; k < g.size(); ++k)
      g[k] = dfinal(head.sequence, first + static_cast<std::int64_t>(k));
    for (std::int64_t i = shape.seq_len - 1; i >= 0; --i)
      backward_token(head, i, dy, h[static_cast<std::size_t>(i)],
                     h[static_cast<std::size_t>(i + 1)], g, magnitudes ? -1.0 : 1.0, result);
    for (std::size_t k = 0; k < g.size(); ++k)
      result.initial_state(head.sequence, first + static_cast<std::int64_t>(k)) = g[k];
  });
  return result;
}

}  // namespace meshplan::reference
