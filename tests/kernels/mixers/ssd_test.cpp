#include "kernels/mixers/ssd_support.hpp"

namespace meshplan::kernels::test {

namespace {

using reference::Ssd;
using reference::SsdInputs;
using reference::SsdOutputs;

/// B, S, H, P, G, N, Q: chunks that do not divide the sequence, one chunk longer than it, heads
/// that threads share out, rows of several tiles.
const std::vector<SsdShape> kShapes = {{1, 1, 1, 1, 1, 1, 128},   {2, 7, 2, 3, 1, 5, 4},
                                       {1, 70, 4, 20, 2, 24, 32}, {2, 40, 10, 8, 1, 16, 16},
                                       {1, 33, 2, 16, 2, 8, 256}, {1, 150, 2, 72, 1, 136, 128}};

template <class Body>
void for_each_case(const Body& body) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const SsdShape& shape : kShapes)
      for (const bool documents : {false, true}) {
        INFO(name_of(dtype) << " S " << shape.seq_len << " H " << shape.heads << " P "
                            << shape.head_size << " N " << shape.state_size << " Q "
                            << shape.chunk_size << (documents ? " documents" : ""));
        Ssd ssd{.shape = shape, .limits = {}, .positions = {}};
        if (documents) ssd.positions = document_positions(shape, {5, 1, 17, 40, 3});
        body(ssd_case(dtype, ssd, documents || shape.seq_len > 40));
      }
}

/// `inputs` with one of its matrices replaced.
SsdInputs with(SsdInputs inputs, Matrix SsdInputs::*part, const Matrix& value) {
  inputs.*part = value;
  return inputs;
}

/// Gradients by central differences of the reference's forward.
SsdInputs differences(const SsdCase& c) {
  SsdInputs result;
  Matrix weights(1, 0);
  for (const Matrix* part : {&c.gradient.y, &c.gradient.final_state}) {
    weights.values.insert(weights.values.end(), part->values.begin(), part->values.end());
  }
  weights.columns = static_cast<std::int64_t>(weights.values.size());
  for (Matrix SsdInputs::*part : {&SsdInputs::xbc, &SsdInputs::dt, &SsdInputs::a_log, &SsdInputs::d,
                                  &SsdInputs::dt_bias, &SsdInputs::initial_state})
    result.*part = reference::finite_difference(
        [&](const Matrix& moved) {
          const SsdOutputs outputs = c.ssd.forward(with(c.inputs, part, moved));
          Matrix all = weights;
          auto end =
              std::copy(outputs.y.values.begin(), outputs.y.values.end(), all.values.begin());
          std::copy(outputs.final_state.values.begin(), outputs.final_state.values.end(), end);
          return all;
        },
        c.inputs.*part, weights);
  return result;
}

/// Small enough for differences.
SsdCase small_case(bool documents, StepLimits limits = {}) {
  Ssd ssd{.shape = {2, 11, 4, 3, 2, 5, 4}, .limits = limits, .positions = {}};
  if (documents) ssd.positions = document_positions(ssd.shape, {4, 1, 6});
  return ssd_case(DType::F32, ssd, true);
}

/// Bits of everything that both passes write.
std::vector<std::vector<double>> values_of(const SsdResults& r) {
  return {r.outputs.y.values,         r.outputs.final_state.values,    r.gradients.xbc.values,
          r.gradients.dt.values,      r.gradients.a_log.values,        r.gradients.d.values,
          r.gradients.dt_bias.values, r.gradients.initial_state.values};
}

}  // namespace

TEST_CASE("a state-space mixer agrees with the recurrence, forward and backward",
          "[kernels][ssd]") {
  for_each_case([](const SsdCase& c) {
    const SsdResults expected = reference_results(c);
    for_each_backend([&](Backend& backend) { check_ssd(c, run_ssd(backend, c), expected); });
  });
}

TEST_CASE("every gradient of a state-space mixer agrees with finite differences",
          "[kernels][ssd]") {
  for (const bool documents : {false, true})
    for (const StepLimits limits : {StepLimits{}, StepLimits{0.1F, 0.4F}}) {
      INFO((documents ? "documents " : "") << limits.upper);
      const SsdCase c = small_case(documents, limits);
      const SsdResults expected{c.ssd.forward(c.inputs), differences(c)};
      check_ssd(c, reference_results(c), expected, 1e-8);
      for_each_backend(
          [&](Backend& backend) { check_ssd(c, run_ssd(backend, c), expected, 1e-8); });
    }
}

TEST_CASE("the chunk size of a state-space mixer changes rounding alone", "[kernels][ssd]") {
  for_each_backend([](Backend& backend) {
    SsdCase c = ssd_case(DType::F32, {.shape = {1, 75, 2, 8, 1, 16, 128}, .positions = {}}, true);
    const SsdResults whole = run_ssd(backend, c);
    for (const std::int64_t chunk : {1, 7, 16, 33, 64, 75}) {
      INFO("Q " << chunk);
      c.ssd.shape.chunk_size = chunk;
      check_ssd(c, run_ssd(backend, c), whole);
    }
  });
}

TEST_CASE("large sums of decays cost a state-space mixer no accuracy", "[kernels][ssd]") {
  SsdCase c = ssd_case(DType::F32, {.shape = {1, 96, 2, 4, 1, 8, 96}, .positions = {}}, true);
  for (std::int64_t t = 0; t < 96; ++t)
    for (std::int64_t h = 0; h < 2; ++h)  // the sums pass 4,000, then steps are small
      c.inputs.dt(t, h) = t < 48 ? 6.0 + 0.01 * static_cast<double>(t % 5) : -5.0;
  for (double& value : c.inputs.dt.values) value = rounded(value, DType::F32);
  for (double& value : c.inputs.a_log.values) value = rounded(2.7, DType::F32);
  const SsdResults expected = reference_results(c);
  for_each_backend([&](Backend& backend) { check_ssd(c, run_ssd(backend, c), expected); });
}

TEST_CASE("a state-space mixer repeats bit for bit and adds to weight gradients",
          "[kernels][ssd]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      const SsdShape shape{2, 70, 10, 8, 1, 16, 32};
      const SsdCase c = ssd_case(dtype, {.shape = shape, .positions = {}}, true);
      const SsdResults once = run_ssd(backend, c);
      CHECK(values_of(run_ssd(backend, c)) == values_of(once));
      const SsdResults added = run_ssd(backend, c, 0.5);
      for (Matrix SsdInputs::*part : {&SsdInputs::a_log, &SsdInputs::d, &SsdInputs::dt_bias})
        for (std::int64_t head = 0; head < shape.heads; ++head)
          CHECK((added.gradients.*part)(0, head) ==
                Approx((once.gradients.*part)(0, head) + 0.5).epsilon(1e-6).margin(1e-6));
    }
  });
}

TEST_CASE("a state-space mixer has the same bits on any number of threads", "[kernels][ssd]") {
  const SsdCase c =
      ssd_case(DType::F32, {.shape = {2, 50, 20, 8, 2, 16, 16}, .positions = {}}, true);
  const SsdResults alone = run_ssd(*make_cpu_backend(1), c);
  for (const int threads : {2, 3})
    CHECK(values_of(run_ssd(*make_cpu_backend(threads), c)) == values_of(alone));
}

TEST_CASE("sequences of a state-space mixer do not see each other", "[kernels][ssd]") {
  for_each_backend([](Backend& backend) {
    const SsdShape both{2, 37, 4, 8, 2, 16, 16};
    const SsdCase c = ssd_case(DType::F32, {.shape = both, .positions = {}}, true);
    const SsdResults together = run_ssd(backend, c);
    SsdCase second = c;
    second.ssd.shape.num_sequences = 1;
    const auto keep_last_rows = [](Matrix& matrix) {
      Matrix rest(matrix.rows / 2, matrix.columns);
      std::copy(matrix.values.end() - static_cast<std::ptrdiff_t>(rest.values.size()),
                matrix.values.end(), rest.values.begin());
      matrix = rest;
    };
    for (Matrix* matrix : {&second.inputs.xbc, &second.inputs.dt, &second.inputs.initial_state,
                           &second.gradient.y, &second.gradient.final_state})
      keep_last_rows(*matrix);
    const SsdResults alone = run_ssd(backend, second);
    SsdResults of_both = together;
    for (Matrix* matrix : {&of_both.outputs.y, &of_both.outputs.final_state, &of_both.gradients.xbc,
                           &of_both.gradients.dt, &of_both.gradients.initial_state}) {
      keep_last_rows(*matrix);
    }
    CHECK(of_both.outputs.y.values == alone.outputs.y.values);
    CHECK(of_both.outputs.final_state.values == alone.outputs.final_state.values);
    CHECK(of_both.gradients.xbc.values == alone.gradients.xbc.values);
    CHECK(of_both.gradients.dt.values == alone.gradients.dt.values);
    CHECK(of_both.gradients.initial_state.values == alone.gradients.initial_state.values);
  });
}

TEST_CASE("documents of a state-space mixer do not see each other", "[kernels][ssd]") {
  for_each_backend([](Backend& backend) {
    Ssd ssd{.shape = {1, 50, 2, 8, 1, 16, 32}, .limits = {}, .positions = {}};
    ssd.positions = document_positions(ssd.shape, {14, 11, 30});  // they begin at 12 and 23
    const SsdCase c = ssd_case(DType::F32, ssd, true);
    SsdCase other = c;  // all but the second document
    for (std::int64_t t = 0; t < 50; ++t)
      if (t < 12 || t >= 23)
        for (std::int64_t i = 0; i < ssd.shape.xbc_columns(); ++i) other.inputs.xbc(t, i) = 0.25;
    const SsdResults first = run_ssd(backend, c);
    const SsdResults second = run_ssd(backend, other);
    for (std::int64_t t = 12; t < 23; ++t) {
      for (std::int64_t i = 0; i < ssd.shape.columns(); ++i)
        CHECK(first.outputs.y(t, i) == second.outputs.y(t, i));
      for (std::int64_t i = 0; i < ssd.shape.xbc_columns(); ++i)
        CHECK(first.gradients.xbc(t, i) == second.gradients.xbc(t, i));
      for (std::int64_t i = 0; i < ssd.shape.heads; ++i)
        CHECK(first.gradients.dt(t, i) == second.gradients.dt(t, i));
    }
  });
}

TEST_CASE("a sequence in two parts, its state passed on, is the whole sequence", "[kernels][ssd]") {
  constexpr std::int64_t kFirst = 21;
  const SsdCase whole =
      ssd_case(DType::F32, {.shape = {1, 50, 2, 8, 1, 16, 16}, .positions = {}}, true);
  const auto part = [&](std::int64_t begin, std::int64_t length) {
    SsdCase c = whole;
    c.ssd.shape.seq_len = length;
    for (Matrix* matrix : {&c.inputs.xbc, &c.inputs.dt, &c.gradient.y}) {
      Matrix rows(length, matrix->columns);
      std::copy_n(matrix->values.begin() + begin * matrix->columns, rows.values.size(),
                  rows.values.begin());
      *matrix = rows;
    }
    return c;
  };
  for_each_backend([&](Backend& backend) {
    const SsdResults expected = run_ssd(backend, whole);
    SsdCase first = part(0, kFirst);
    SsdCase second = part(kFirst, 50 - kFirst);
    second.inputs.initial_state = run_ssd(backend, first).outputs.final_state;
    const SsdResults end = run_ssd(backend, second);
    first.gradient.final_state = end.gradients.initial_state;
    const SsdResults begin = run_ssd(backend, first);
    SsdResults joined = end;
    joined.gradients.initial_state = begin.gradients.initial_state;
    const auto join = [](Matrix& later, const Matrix& earlier) {
      later.values.insert(later.values.begin(), earlier.values.begin(), earlier.values.end());
      later.rows += earlier.rows;
    };
    join(joined.outputs.y, begin.outputs.y);
    join(joined.gradients.xbc, begin.gradients.xbc);
    join(joined.gradients.dt, begin.gradients.dt);
    for (Matrix SsdInputs::*weight : {&SsdInputs::a_log, &SsdInputs::d, &SsdInputs::dt_bias})
      for (std::int64_t head = 0; head < 2; ++head)
        (joined.gradients.*weight)(0, head) += (begin.gradients.*weight)(0, head);
    check_ssd(whole, joined, expected);
  });
}

TEST_CASE("a state-space mixer without states at its ends writes none", "[kernels][ssd]") {
  for_each_backend([](Backend& backend) {
    const SsdCase c =
        ssd_case(DType::F32, {.shape = {2, 20, 2, 4, 1, 8, 8}, .positions = {}}, false);
    const SsdMemory memory(backend, c);
    SsdForward forward = forward_of(c, memory);
    forward.final_state = nullptr;
    run(backend, forward);
    SsdBackward backward = backward_of(c, memory);  // no weight's gradient either
    backward.initial_state_grad = nullptr;
    run(backend, backward);
    const SsdResults expected = run_ssd(backend, c);
    CHECK(memory.y.read().values == expected.outputs.y.values);
    CHECK(reference::slice_columns(memory.dprojected.read(), 0, c.ssd.shape.xbc_columns()).values ==
          expected.gradients.xbc.values);
    CHECK(memory.final_state.read()(0, 0) == 4096.0);
    CHECK(memory.initial_state_grad.read()(1, 0) == 4096.0);
  });
}

}  // namespace meshplan::kernels::test
