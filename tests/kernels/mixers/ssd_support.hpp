// State-space mixers as tests run them: their operands, both passes, and bounds of rounding.
#pragma once

#include <algorithm>
#include <optional>

#include "kernels/support.hpp"
#include "reference/ssd.hpp"

namespace meshplan::kernels::test {

/// A problem and its operands. xbc and dt lie in one buffer, as a projection leaves them; so do
/// their gradients.
struct SsdCase {
  DType dtype = DType::F32;
  reference::Ssd ssd;
  reference::SsdInputs inputs;
  reference::SsdOutputs gradient;
  bool with_states = false;  // initial state and the gradient of the final one; else null
  std::int64_t padding = 0;
};

struct SsdResults {
  reference::SsdOutputs outputs;
  reference::SsdInputs gradients;
};

/// Values in [low, high] that `dtype` holds.
inline Matrix values_between(DType dtype, std::int64_t rows, std::int64_t columns,
                             std::uint32_t seed, double low, double high) {
  Matrix result = reference::random_matrix(rows, columns, seed, (high - low) / 2.0);
  for (double& value : result.values) value = rounded(value + (low + high) / 2.0, dtype);
  return result;
}

inline SsdCase ssd_case(DType dtype, const reference::Ssd& ssd, bool with_states) {
  const SsdShape& shape = ssd.shape;
  const std::int64_t sequences = shape.num_sequences, states = shape.state_elements();
  const double state_scale = with_states ? 1.0 : 0.0;
  return {.dtype = dtype,
          .ssd = ssd,
          .inputs = {.xbc = random_in(dtype, shape.tokens(), shape.xbc_columns(), 1),
                     .dt = values_between(dtype, shape.tokens(), shape.heads, 2, -4.0, 1.0),
                     .a_log = values_between(dtype, 1, shape.heads, 3, -1.0, 2.7),
                     .d = random_in(dtype, 1, shape.heads, 4),
                     .dt_bias = values_between(dtype, 1, shape.heads, 5, -2.0, 0.5),
                     .initial_state = random_in(DType::F32, sequences, states, 6, state_scale)},
          .gradient = {random_in(dtype, shape.tokens(), shape.columns(), 7),
                       random_in(DType::F32, sequences, states, 8, state_scale)},
          .with_states = with_states,
          .padding = 3};
}

inline Matrix side_by_side(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, a.columns + b.columns);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t i = 0; i < a.columns; ++i) result(row, i) = a(row, i);
    for (std::int64_t i = 0; i < b.columns; ++i) result(row, a.columns + i) = b(row, i);
  }
  return result;
}

/// Operands in device memory.
struct SsdMemory {
  SsdMemory(Backend& backend, const SsdCase& c)
      : shape(c.ssd.shape),
        dtype(c.dtype),
        projected(backend, side_by_side(c.inputs.xbc, c.inputs.dt), dtype, c.padding),
        a_log(backend, c.inputs.a_log, dtype),
        d(backend, c.inputs.d, dtype),
        dt_bias(backend, c.inputs.dt_bias, dtype),
        positions(backend, c.ssd.positions),
        initial_state(backend, c.inputs.initial_state),
        y(backend, shape.tokens(), shape.columns(), dtype, c.padding),
        states(backend, shape.num_sequences * shape.num_chunks(), shape.state_elements()),
        final_state(backend, shape.num_sequences, shape.state_elements()),
        dy(backend, c.gradient.y, dtype, 1),
        final_state_grad(backend, c.gradient.final_state),
        dprojected(backend, shape.tokens(), shape.xbc_columns() + shape.heads, dtype, 5),
        initial_state_grad(backend, shape.num_sequences, shape.state_elements()),
        has_positions(!c.ssd.positions.empty()) {}

  void* dt_of(const DeviceMatrix& matrix) const {
    return static_cast<char*>(matrix.data()) + shape.xbc_columns() * size_of(dtype);
  }
  const std::int32_t* token_positions() const { return has_positions ? positions.data() : nullptr; }

  SsdShape shape;
  DType dtype;
  DeviceMatrix projected, a_log, d, dt_bias;
  DeviceVector<std::int32_t> positions;
  DeviceMatrix initial_state, y, states, final_state, dy, final_state_grad, dprojected,
      initial_state_grad;
  bool has_positions;
};

inline SsdForward forward_of(const SsdCase& c, const SsdMemory& m) {
  return {.shape = m.shape,
          .limits = c.ssd.limits,
          .dtype = m.dtype,
          .xbc = m.projected.data(),
          .xbc_stride = m.projected.stride(),
          .dt = m.dt_of(m.projected),
          .dt_stride = m.projected.stride(),
          .a_log = m.a_log.data(),
          .d = m.d.data(),
          .dt_bias = m.dt_bias.data(),
          .positions = m.token_positions(),
          .initial_state = c.with_states ? m.initial_state.floats() : nullptr,
          .y = m.y.data(),
          .y_stride = m.y.stride(),
          .states = m.states.floats(),
          .final_state = m.final_state.floats()};
}

/// Without the gradients of weights.
inline SsdBackward backward_of(const SsdCase& c, const SsdMemory& m) {
  return {.shape = m.shape,
          .limits = c.ssd.limits,
          .dtype = m.dtype,
          .dy = m.dy.data(),
          .dy_stride = m.dy.stride(),
          .xbc = m.projected.data(),
          .xbc_stride = m.projected.stride(),
          .dt = m.dt_of(m.projected),
          .dt_stride = m.projected.stride(),
          .a_log = m.a_log.data(),
          .d = m.d.data(),
          .dt_bias = m.dt_bias.data(),
          .positions = m.token_positions(),
          .states = m.states.floats(),
          .final_state_grad = c.with_states ? m.final_state_grad.floats() : nullptr,
          .dxbc = m.dprojected.data(),
          .dxbc_stride = m.dprojected.stride(),
          .ddt = m.dt_of(m.dprojected),
          .ddt_stride = m.dprojected.stride(),
          .initial_state_grad = m.initial_state_grad.floats()};
}

/// Both passes. @param before  what the weights' gradients hold; they accumulate if it is given
inline SsdResults run_ssd(Backend& backend, const SsdCase& c,
                          std::optional<double> before = std::nullopt) {
  const SsdMemory memory(backend, c);
  Matrix start(1, memory.shape.heads);
  for (double& value : start.values) value = before.value_or(99.0);
  const DeviceMatrix da_log(backend, start);
  const DeviceMatrix dd(backend, start);
  const DeviceMatrix ddt_bias(backend, start);
  run(backend, forward_of(c, memory));
  SsdBackward backward = backward_of(c, memory);
  backward.da_log = da_log.floats();
  backward.dd = dd.floats();
  backward.ddt_bias = ddt_bias.floats();
  backward.accumulate = before.has_value();
  run(backend, backward);
  const Matrix grads = memory.dprojected.read();
  const std::int64_t xbc = memory.shape.xbc_columns();
  return {.outputs = {memory.y.read(), memory.final_state.read()},
          .gradients = {.xbc = reference::slice_columns(grads, 0, xbc),
                        .dt = reference::slice_columns(grads, xbc, memory.shape.heads),
                        .a_log = da_log.read(),
                        .d = dd.read(),
                        .dt_bias = ddt_bias.read(),
                        .initial_state = memory.initial_state_grad.read()}};
}

/// What a result may differ by from one of fp64, from the sums of its terms' absolute values. A
/// term has been rounded some dozens of times: in steps, in decays, in sums of N, P and Q products.
inline auto ssd_bound(const SsdShape& shape, DType dtype, const Matrix& magnitudes,
                      std::int64_t more = 0, double extra = 0.0) {
  const std::int64_t length = shape.state_size + shape.head_size +
                              std::min(shape.chunk_size, shape.seq_len) + shape.num_chunks() +
                              more + 64;
  return [=](std::int64_t row, std::int64_t column) {
    return tolerance(dtype, length, magnitudes(row, column)) + extra + 1e-30;
  };
}

/// Compares outputs, then gradients, with those of `expected`.
inline void check_ssd(const SsdCase& c, const SsdResults& actual, const SsdResults& expected,
                      double extra = 0.0) {
  const SsdShape& shape = c.ssd.shape;
  const auto check = [&](const char* name, const Matrix& got, const Matrix& wanted,
                         const Matrix& magnitudes, DType dtype, std::int64_t more) {
    INFO(name);
    check_close(got, wanted, ssd_bound(shape, dtype, magnitudes, more, extra));
  };
  const reference::SsdOutputs sums = c.ssd.forward_magnitudes(c.inputs);
  check("y", actual.outputs.y, expected.outputs.y, sums.y, c.dtype, 0);
  check("final state", actual.outputs.final_state, expected.outputs.final_state, sums.final_state,
        DType::F32, 0);
  const reference::SsdInputs grads = c.ssd.backward(c.inputs, c.gradient, true);
  check("dxbc", actual.gradients.xbc, expected.gradients.xbc, grads.xbc, c.dtype, shape.heads);
  check("ddt", actual.gradients.dt, expected.gradients.dt, grads.dt, c.dtype, shape.chunk_size);
  for (const auto& [name, part] : {std::pair("da_log", &reference::SsdInputs::a_log),
                                   {"dd", &reference::SsdInputs::d},
                                   {"ddt_bias", &reference::SsdInputs::dt_bias},
                                   {"initial state", &reference::SsdInputs::initial_state}})
    check(name, actual.gradients.*part, expected.gradients.*part, grads.*part, DType::F32,
          shape.tokens());
}

inline SsdResults reference_results(const SsdCase& c) {
  return {c.ssd.forward(c.inputs), c.ssd.backward(c.inputs, c.gradient)};
}

/// Documents of these lengths over and over. A sequence begins inside of one.
inline std::vector<std::int32_t> document_positions(const SsdShape& shape,
                                                    const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> positions;
  for (std::int64_t sequence = 0; sequence < shape.num_sequences; ++sequence) {
    std::size_t document = 0;
    std::int32_t position = 2;
    for (std::int64_t i = 0; i < shape.seq_len; ++i) {
      positions.push_back(position);
      if (++position >= lengths[document % lengths.size()]) {
        position = 0;
        ++document;
      }
    }
  }
  return positions;
}

}  // namespace meshplan::kernels::test
