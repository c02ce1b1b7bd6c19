#include "kernels/mixers/gated_delta.hpp"

#include "kernels/support.hpp"
#include "reference/mixers.hpp"

namespace meshplan::kernels::test {

namespace {

using reference::GatedDeltaInputs;
using reference::GatedDeltaOutputs;

struct Case {
  DType dtype = DType::F32;
  GatedDeltaShape shape;
  GatedDeltaInputs inputs;
  GatedDeltaOutputs grads;  // of the outputs
  DType decay_dtype = DType::F32;
};

struct Options {
  bool documents = false;
  bool initial_state = false;
  double gate_scale = 2.0;  // of b and a
};

/// Documents of 1, 2, 3, ... tokens; the first one goes on from before.
std::vector<std::int32_t> growing_documents(std::int64_t tokens) {
  std::vector<std::int32_t> positions;
  for (std::int32_t length = 1; std::ssize(positions) < tokens; ++length)
    for (std::int32_t i = 0; i < length && std::ssize(positions) < tokens; ++i)
      positions.push_back(length == 1 ? 5 : i);
  return positions;
}

Case make_case(DType dtype, const GatedDeltaShape& shape, const Options& options = {}) {
  const std::int64_t states = shape.num_sequences * shape.value_heads * shape.key_size;
  Case c{.dtype = dtype, .shape = shape};
  c.inputs = {.qkv = random_in(dtype, shape.tokens(), shape.columns(), 1),
              .ba = random_in(dtype, shape.tokens(), 2 * shape.value_heads, 2, options.gate_scale),
              .dt_bias = random_in(dtype, 1, shape.value_heads, 3),
              .a_log = random_in(dtype, 1, shape.value_heads, 4, 2.0)};
  if (options.initial_state)
    c.inputs.initial_state = random_in(DType::F32, states, shape.value_size, 5);
  if (options.documents) c.inputs.positions = growing_documents(shape.tokens());
  c.grads = {random_in(dtype, shape.tokens(), shape.value_columns(), 6),
             random_in(DType::F32, states, shape.value_size, 7)};
  return c;
}

struct Result {
  Matrix o, final_state;
  Matrix dqkv, dba, ddt_bias, da_log, dinitial_state;
};

/// Operands of a case in device memory.
struct Operands {
  Operands(Backend& backend, const Case& c)
      : qkv(backend, c.inputs.qkv, c.dtype, 3),
        ba(backend, c.inputs.ba, c.dtype, 1),
        dt_bias(backend, c.inputs.dt_bias, c.decay_dtype),
        a_log(backend, c.inputs.a_log, c.decay_dtype),
        initial_state(backend, has_initial(c) ? c.inputs.initial_state : Matrix(1, 1)),
        positions(backend,
                  c.inputs.positions.empty() ? std::vector<std::int32_t>(1) : c.inputs.positions) {}
  static bool has_initial(const Case& c) { return !c.inputs.initial_state.values.empty(); }
  DeviceMatrix qkv, ba, dt_bias, a_log, initial_state;
  DeviceVector<std::int32_t> positions;
};

/// @param before  what the gradients of dt_bias and a_log hold; they accumulate if it is given
Result run_both(Backend& backend, const Case& c, std::optional<double> before = std::nullopt) {
  const GatedDeltaShape& s = c.shape;
  const Operands in(backend, c);
  const std::int64_t states = s.num_sequences * s.value_heads;
  const std::int32_t* positions = c.inputs.positions.empty() ? nullptr : in.positions.data();
  const DeviceMatrix o(backend, s.tokens(), s.value_columns(), c.dtype, 2);
  const DeviceMatrix kept(backend, states * s.chunks() * s.key_size, s.value_size);
  const DeviceMatrix final_state(backend, states * s.key_size, s.value_size);
  run(backend, GatedDeltaForward{
                   .shape = s,
                   .dtype = c.dtype,
                   .qkv = in.qkv.data(),
                   .qkv_stride = in.qkv.stride(),
                   .ba = in.ba.data(),
                   .ba_stride = in.ba.stride(),
                   .decay_dtype = c.decay_dtype,
                   .dt_bias = in.dt_bias.data(),
                   .a_log = in.a_log.data(),
                   .positions = positions,
                   .initial_state = Operands::has_initial(c) ? in.initial_state.floats() : nullptr,
                   .o = o.data(),
                   .o_stride = o.stride(),
                   .states = kept.floats(),
                   .final_state = final_state.floats()});
  Matrix start(1, s.value_heads);
  for (double& value : start.values) value = before.value_or(99.0);
  const DeviceMatrix output_grad(backend, c.grads.o, c.dtype, 1);
  const bool has_final_grad = !c.grads.final_state.values.empty();
  const DeviceMatrix final_grad(backend, has_final_grad ? c.grads.final_state : Matrix(1, 1));
  const DeviceMatrix dqkv(backend, s.tokens(), s.columns(), c.dtype, 5);
  const DeviceMatrix dba(backend, s.tokens(), 2 * s.value_heads, c.dtype, 3);
  const DeviceMatrix ddt_bias(backend, start);
  const DeviceMatrix da_log(backend, start);
  const DeviceMatrix dinitial(backend, states * s.key_size, s.value_size);
  run(backend,
      GatedDeltaBackward{.shape = s,
                         .dtype = c.dtype,
                         .output_grad = output_grad.data(),
                         .output_grad_stride = output_grad.stride(),
                         .qkv = in.qkv.data(),
                         .qkv_stride = in.qkv.stride(),
                         .ba = in.ba.data(),
                         .ba_stride = in.ba.stride(),
                         .decay_dtype = c.decay_dtype,
                         .dt_bias = in.dt_bias.data(),
                         .a_log = in.a_log.data(),
                         .positions = positions,
                         .states = kept.floats(),
                         .final_state_grad = has_final_grad ? final_grad.floats() : nullptr,
                         .dqkv = dqkv.data(),
                         .dqkv_stride = dqkv.stride(),
                         .dba = dba.data(),
                         .dba_stride = dba.stride(),
                         .ddt_bias = ddt_bias.floats(),
                         .da_log = da_log.floats(),
                         .accumulate = before.has_value(),
                         .initial_state_grad = dinitial.floats()});
  return {o.read(),        final_state.read(), dqkv.read(),    dba.read(),
          ddt_bias.read(), da_log.read(),      dinitial.read()};
}

/// Result against expected one, both of any scale: sums of `terms` numbers as large as the largest.
void check_scaled(const Matrix& actual, const Matrix& expected, DType dtype, std::int64_t terms) {
  double largest = 0.0;
  for (const double value : expected.values) largest = std::fmax(largest, std::fabs(value));
  check_close(actual, expected, tolerance(dtype, terms, 4.0 * largest) + 1e-7);
}

std::int64_t terms_of(const GatedDeltaShape& shape) {
  return shape.chunk_len + shape.key_size + shape.value_size;
}

void check_results(const Result& actual, const Result& expected, const Case& c) {
  const std::int64_t terms = terms_of(c.shape);
  check_scaled(actual.o, expected.o, c.dtype, terms);
  check_scaled(actual.final_state, expected.final_state, DType::F32, terms);
  check_scaled(actual.dqkv, expected.dqkv, c.dtype, terms);
  check_scaled(actual.dba, expected.dba, c.dtype, terms);
  check_scaled(actual.ddt_bias, expected.ddt_bias, DType::F32, terms + c.shape.tokens());
  check_scaled(actual.da_log, expected.da_log, DType::F32, terms + c.shape.tokens());
  check_scaled(actual.dinitial_state, expected.dinitial_state, DType::F32, terms);
}

/// Output and final state in one row, for differences.
Matrix in_a_row(const GatedDeltaOutputs& outputs) {
  Matrix row(1, std::ssize(outputs.o.values) + std::ssize(outputs.final_state.values));
  row.values = outputs.o.values;
  row.values.insert(row.values.end(), outputs.final_state.values.begin(),
                    outputs.final_state.values.end());
  return row;
}

/// The token-by-token rule, and central differences by every input and weight.
Result expected_of(const Case& c) {
  const Matrix weights = in_a_row(c.grads);
  const auto by = [&](Matrix GatedDeltaInputs::*which) {
    return reference::finite_difference(
        [&](const Matrix& at) {
          GatedDeltaInputs moved = c.inputs;
          moved.*which = at;
          return in_a_row(reference::gated_delta(c.shape, moved));
        },
        c.inputs.*which, weights);
  };
  const GatedDeltaOutputs outputs = reference::gated_delta(c.shape, c.inputs);
  return {outputs.o,
          outputs.final_state,
          by(&GatedDeltaInputs::qkv),
          by(&GatedDeltaInputs::ba),
          by(&GatedDeltaInputs::dt_bias),
          by(&GatedDeltaInputs::a_log),
          by(&GatedDeltaInputs::initial_state)};
}

const GatedDeltaShape kSmall{.num_sequences = 2,
                             .seq_len = 11,
                             .key_heads = 2,
                             .value_heads = 4,
                             .key_size = 4,
                             .value_size = 5,
                             .chunk_len = 4};

}  // namespace

TEST_CASE("the gated delta rule in chunks is the rule token by token", "[kernels][mixers]") {
  const std::vector<GatedDeltaShape> shapes = {kSmall,
                                               {.num_sequences = 1,
                                                .seq_len = 1,
                                                .key_heads = 1,
                                                .value_heads = 1,
                                                .key_size = 1,
                                                .value_size = 1},
                                               {.num_sequences = 2,
                                                .seq_len = 130,
                                                .key_heads = 1,
                                                .value_heads = 2,
                                                .key_size = 24,
                                                .value_size = 17},
                                               {.num_sequences = 1,
                                                .seq_len = 100,
                                                .key_heads = 1,
                                                .value_heads = 1,
                                                .key_size = 64,
                                                .value_size = 80,
                                                .chunk_len = 32}};
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const GatedDeltaShape& shape : shapes)
      for (const bool documents : {false, true})
        for (const bool initial : {false, true}) {
          INFO(name_of(dtype) << " S " << shape.seq_len << " Ek " << shape.key_size
                              << (documents ? " documents" : "") << (initial ? " initial" : ""));
          const Case c = make_case(dtype, shape, {documents, initial});
          const GatedDeltaOutputs expected = reference::gated_delta(shape, c.inputs);
          for_each_backend([&](Backend& backend) {
            const Result result = run_both(backend, c);
            check_scaled(result.o, expected.o, dtype, terms_of(shape));
            check_scaled(result.final_state, expected.final_state, DType::F32, terms_of(shape));
          });
        }
}

TEST_CASE("gradients of the gated delta rule agree with finite differences", "[kernels][mixers]") {
  const GatedDeltaShape two_chunks{.num_sequences = 1,
                                   .seq_len = 70,
                                   .key_heads = 1,
                                   .value_heads = 2,
                                   .key_size = 3,
                                   .value_size = 4};
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const GatedDeltaShape& shape : {kSmall, two_chunks})
      for (const bool documents : {false, true}) {
        INFO(name_of(dtype) << " S " << shape.seq_len << (documents ? " documents" : ""));
        const Case c = make_case(dtype, shape, {documents, true});
        const Result expected = expected_of(c);
        for_each_backend(
            [&](Backend& backend) { check_results(run_both(backend, c), expected, c); });
      }
}

// Decays of e^-1000 and of e^-0.001 side by side: their sums in fp32 would lose the small ones.
TEST_CASE("the gated delta rule keeps small decays beside large ones", "[kernels][mixers]") {
  Case c = make_case(DType::F32, {.num_sequences = 1,
                                  .seq_len = 40,
                                  .key_heads = 1,
                                  .value_heads = 2,
                                  .key_size = 6,
                                  .value_size = 3,
                                  .chunk_len = 32});
  for (std::int64_t t = 0; t < c.shape.seq_len; ++t)
    for (std::int64_t head = 0; head < 2; ++head)
      c.inputs.ba(t, 2 + head) = t % 7 == 3 ? 1000.0 : -6.0;
  c.inputs.initial_state = Matrix(12, 3);
  const Result expected = expected_of(c);
  for_each_backend([&](Backend& backend) { check_results(run_both(backend, c), expected, c); });
}

TEST_CASE("the gated delta rule is the same in chunks of any length", "[kernels][mixers]") {
  for_each_backend([](Backend& backend) {
    GatedDeltaShape shape = kSmall;
    shape.seq_len = 33;
    shape.chunk_len = 64;
    const Result expected = run_both(backend, make_case(DType::F32, shape, {true, true}));
    for (const std::int64_t chunk_len : {1, 5, 16, 33}) {
      shape.chunk_len = chunk_len;
      INFO("C " << chunk_len);
      const Case c = make_case(DType::F32, shape, {true, true});
      check_results(run_both(backend, c), expected, c);
    }
  });
}

TEST_CASE("the gated delta rule repeats to the bit", "[kernels][mixers]") {
  for_each_backend([](Backend& backend) {
    const Case c = make_case(DType::BF16, kSmall, {false, true});
    const Result once = run_both(backend, c);
    const Result again = run_both(backend, c);
    CHECK(again.o.values == once.o.values);
    CHECK(again.final_state.values == once.final_state.values);
    CHECK(again.dqkv.values == once.dqkv.values);
    CHECK(again.dba.values == once.dba.values);
    CHECK(again.ddt_bias.values == once.ddt_bias.values);
    CHECK(again.da_log.values == once.da_log.values);
    CHECK(again.dinitial_state.values == once.dinitial_state.values);
  });
}

namespace {

Matrix rows_of(const Matrix& x, std::int64_t begin, std::int64_t count) {
  Matrix result(count, x.columns);
  for (std::int64_t row = 0; row < count; ++row)
    for (std::int64_t i = 0; i < x.columns; ++i) result(row, i) = x(begin + row, i);
  return result;
}

/// The tokens [begin, begin + count) of a case of one sequence, or of each sequence on its own.
Case part_of(const Case& c, std::int64_t begin, std::int64_t count) {
  Case part = c;
  part.shape.num_sequences = 1;
  part.shape.seq_len = count;
  part.inputs.qkv = rows_of(c.inputs.qkv, begin, count);
  part.inputs.ba = rows_of(c.inputs.ba, begin, count);
  part.grads.o = rows_of(c.grads.o, begin, count);
  return part;
}

}  // namespace

TEST_CASE("sequences of the gated delta rule do not see each other", "[kernels][mixers]") {
  for_each_backend([](Backend& backend) {
    Case c = make_case(DType::F32, kSmall);
    c.grads.final_state = Matrix();
    const Result both = run_both(backend, c);
    for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
      const std::int64_t first = sequence * kSmall.seq_len;
      const Result alone = run_both(backend, part_of(c, first, kSmall.seq_len));
      CHECK(alone.o.values == rows_of(both.o, first, kSmall.seq_len).values);
      CHECK(alone.dqkv.values == rows_of(both.dqkv, first, kSmall.seq_len).values);
      CHECK(alone.dba.values == rows_of(both.dba, first, kSmall.seq_len).values);
    }
  });
}

// As ranks with parts of a sequence would pass them on.
TEST_CASE("states of the gated delta rule pass from part to part", "[kernels][mixers]") {
  for_each_backend([](Backend& backend) {
    GatedDeltaShape shape = kSmall;
    shape.num_sequences = 1;
    const Case whole = make_case(DType::F32, shape, {false, true});
    const Result expected = run_both(backend, whole);
    Case first = part_of(whole, 0, 5);
    Case second = part_of(whole, 5, 6);
    second.inputs.initial_state = run_both(backend, first).final_state;
    const Result of_second = run_both(backend, second);
    first.grads.final_state = of_second.dinitial_state;
    const Result of_first = run_both(backend, first);
    const std::int64_t terms = terms_of(shape);
    check_scaled(of_first.o, rows_of(expected.o, 0, 5), DType::F32, terms);
    check_scaled(of_second.o, rows_of(expected.o, 5, 6), DType::F32, terms);
    check_scaled(of_second.final_state, expected.final_state, DType::F32, terms);
    check_scaled(of_first.dqkv, rows_of(expected.dqkv, 0, 5), DType::F32, terms);
    check_scaled(of_second.dqkv, rows_of(expected.dqkv, 5, 6), DType::F32, terms);
    check_scaled(of_first.dinitial_state, expected.dinitial_state, DType::F32, terms);
    Matrix sum = of_first.da_log;
    for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += of_second.da_log.values[i];
    check_scaled(sum, expected.da_log, DType::F32, terms);
  });
}

TEST_CASE("gradients of the decay's weights accumulate", "[kernels][mixers]") {
  for_each_backend([](Backend& backend) {
    Case c = make_case(DType::BF16, kSmall);
    c.decay_dtype = DType::BF16;
    Result expected = run_both(backend, c);
    for (Matrix* grad : {&expected.ddt_bias, &expected.da_log})
      for (double& value : grad->values) value += 2.0;
    check_results(run_both(backend, c, 2.0), expected, c);
  });
}

}  // namespace meshplan::kernels::test
