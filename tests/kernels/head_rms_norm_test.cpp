#include "kernels/support.hpp"
#include "reference/norms.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr double kEpsilon = 1e-5;

struct Case {
  DType dtype;
  HeadRmsNormShape shape;
  bool padded;  // rows are not aligned for wide accesses
  std::int64_t width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  Matrix x = random_in(dtype, shape.tokens, width, 1, 3.0);
  Matrix q_weight = random_in(dtype, 1, shape.head_size, 2);
  Matrix k_weight = random_in(dtype, 1, shape.head_size, 3);
  Matrix dy = random_in(dtype, shape.tokens, width, 4);
};

const std::vector<HeadRmsNormShape> kShapes = {
    {.tokens = 1, .heads = 1, .kv_heads = 1, .head_size = 8},
    {.tokens = 7, .heads = 4, .kv_heads = 2, .head_size = 16},
    {.tokens = 33, .heads = 3, .kv_heads = 1, .head_size = 20}};

template <class Body>
void for_each_case(const Body& body) {
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const HeadRmsNormShape& shape : kShapes)
      for (const bool padded : {true, false}) {
        INFO(name_of(dtype) << " T " << shape.tokens << " H " << shape.heads << " E "
                            << shape.head_size << (padded ? " padded" : ""));
        const Case c{dtype, shape, padded};
        for_each_backend([&](Backend& backend) { body(backend, c); });
      }
}

void put_columns(Matrix& to, const Matrix& from, std::int64_t first) {
  for (std::int64_t row = 0; row < from.rows; ++row)
    for (std::int64_t i = 0; i < from.columns; ++i) to(row, first + i) = from(row, i);
}

struct Result {
  Matrix y, dx, dq_weight, dk_weight;
};

/// Head by head with the norm of a row; the values pass through.
Result expected_of(const Case& c) {
  const auto& [tokens, heads, kv_heads, size] = c.shape;
  Result result{c.x, c.dy, Matrix(1, size), Matrix(1, size)};
  for (std::int64_t head = 0; head < heads + kv_heads; ++head) {
    const bool query = head < heads;
    const Matrix& weight = query ? c.q_weight : c.k_weight;
    const Matrix x = reference::slice_columns(c.x, head * size, size);
    const Matrix dy = reference::slice_columns(c.dy, head * size, size);
    const auto grads = reference::rms_norm_backward(dy, x, weight, kEpsilon);
    put_columns(result.y, reference::rms_norm(x, weight, kEpsilon), head * size);
    put_columns(result.dx, grads.dx, head * size);
    Matrix& dweight = query ? result.dq_weight : result.dk_weight;
    for (std::int64_t i = 0; i < size; ++i) dweight(0, i) += grads.dweight(0, i);
  }
  return result;
}

/// Whose weights have a gradient.
struct Trained {
  bool queries = true;
  bool keys = true;
};

/// @param before  what the weights' gradients hold; they accumulate if it is given
Result run_both(Backend& backend, const Case& c, std::optional<double> before = std::nullopt,
                Trained trained = {}) {
  const DeviceMatrix x(backend, c.x, c.dtype, c.padded ? 3 : 0);
  const DeviceMatrix q_weight(backend, c.q_weight, c.dtype);
  const DeviceMatrix k_weight(backend, c.k_weight, c.dtype);
  const DeviceMatrix gradient(backend, c.dy, c.dtype, c.padded ? 1 : 0);
  const DeviceMatrix y(backend, c.shape.tokens, c.width, c.dtype, c.padded ? 3 : 0);
  const DeviceMatrix inv_rms(backend, c.shape.heads + c.shape.kv_heads, c.shape.tokens);
  Matrix start(1, c.shape.head_size);
  for (double& value : start.values) value = before.value_or(99.0);
  const DeviceMatrix dq_weight(backend, start);
  const DeviceMatrix dk_weight(backend, start);
  run(backend, HeadRmsNormForward{.shape = c.shape,
                                  .epsilon = static_cast<float>(kEpsilon),
                                  .dtype = c.dtype,
                                  .x = x.data(),
                                  .x_stride = x.stride(),
                                  .q_weight = q_weight.data(),
                                  .k_weight = k_weight.data(),
                                  .y = y.data(),
                                  .inv_rms = inv_rms.floats()});
  run(backend, HeadRmsNormBackward{.shape = c.shape,
                                   .dtype = c.dtype,
                                   .gradient = gradient.data(),
                                   .gradient_stride = gradient.stride(),
                                   .x = x.data(),
                                   .x_stride = x.stride(),
                                   .q_weight = q_weight.data(),
                                   .k_weight = k_weight.data(),
                                   .inv_rms = inv_rms.floats(),
                                   .dq_weight = trained.queries ? dq_weight.floats() : nullptr,
                                   .dk_weight = trained.keys ? dk_weight.floats() : nullptr,
                                   .accumulate = before.has_value()});
  return {y.read(), gradient.read(), dq_weight.read(), dk_weight.read()};
}

double weight_bound(const Case& c) {
  const auto terms = static_cast<double>(c.shape.tokens * c.shape.heads);
  return tolerance(DType::F32, c.shape.tokens * c.shape.heads + c.shape.head_size,
                   4.0 + terms * std::sqrt(3.0));
}

}  // namespace

TEST_CASE("the norm of heads is the RMS norm of every query and key head", "[kernels][norms]") {
  for_each_case([](Backend& backend, const Case& c) {
    const Result result = run_both(backend, c);
    const Result expected = expected_of(c);
    // |n| <= sqrt(E), as in the norm of rows
    const double bound = tolerance(c.dtype, c.shape.head_size,
                                   4.0 * std::sqrt(static_cast<double>(c.shape.head_size)));
    check_close(result.y, expected.y, bound);
    check_close(result.dx, expected.dx, bound);
    check_close(result.dq_weight, expected.dq_weight, weight_bound(c));
    check_close(result.dk_weight, expected.dk_weight, weight_bound(c));
    const std::int64_t first = (c.shape.heads + c.shape.kv_heads) * c.shape.head_size;
    const std::int64_t count = c.width - first;
    CHECK(reference::slice_columns(result.y, first, count).values ==
          reference::slice_columns(c.x, first, count).values);
    CHECK(reference::slice_columns(result.dx, first, count).values ==
          reference::slice_columns(c.dy, first, count).values);
  });
}

// Half a head is rotated where that is possible, else all of it.
TEST_CASE("the norm of heads rotates with the bits of a rotation of its own", "[kernels][norms]") {
  for_each_case([](Backend& backend, const Case& c) {
    const auto& [tokens, heads, kv_heads, size] = c.shape;
    const int rope_size = static_cast<int>(size % 4 == 0 && size > 8 ? size / 2 : size);
    std::vector<double> frequencies;
    for (int i = 0; i < rope_size / 2; ++i) frequencies.push_back(1.0 / (1.0 + i));
    std::vector<float> angles(static_cast<std::size_t>(64 * rope_size));
    build_rope_table(angles, 64, frequencies);
    const DeviceVector<float> table(backend, angles);
    const HeadRotation rotation{.rope_size = rope_size,
                                .positions = {.seq_len = 5, .first_position = 3},
                                .table = table.data()};
    const auto rotate = [&](const DeviceMatrix& rows, bool inverse) {
      run(backend, Rope{.tokens = tokens,
                        .heads = static_cast<int>(heads + kv_heads),
                        .head_size = static_cast<int>(size),
                        .rope_size = rope_size,
                        .positions = rotation.positions,
                        .dtype = c.dtype,
                        .x = rows.data(),
                        .x_stride = rows.stride(),
                        .table = table.data(),
                        .inverse = inverse});
    };
    const auto results = [&](bool fused) {
      const std::int64_t padding = c.padded ? 3 : 0;
      const DeviceMatrix x(backend, c.x, c.dtype, padding);
      const DeviceMatrix q_weight(backend, c.q_weight, c.dtype);
      const DeviceMatrix k_weight(backend, c.k_weight, c.dtype);
      const DeviceMatrix gradient(backend, c.dy, c.dtype, padding);
      const DeviceMatrix y(backend, tokens, c.width, c.dtype, padding);
      const DeviceMatrix inv_rms(backend, heads + kv_heads, tokens);
      const DeviceMatrix dweights(backend, 2, size);
      HeadRmsNormForward forward{.shape = c.shape,
                                 .epsilon = static_cast<float>(kEpsilon),
                                 .dtype = c.dtype,
                                 .x = x.data(),
                                 .x_stride = x.stride(),
                                 .q_weight = q_weight.data(),
                                 .k_weight = k_weight.data(),
                                 .y = y.data(),
                                 .inv_rms = inv_rms.floats()};
      HeadRmsNormBackward backward{.shape = c.shape,
                                   .dtype = c.dtype,
                                   .gradient = gradient.data(),
                                   .gradient_stride = gradient.stride(),
                                   .x = x.data(),
                                   .x_stride = x.stride(),
                                   .q_weight = q_weight.data(),
                                   .k_weight = k_weight.data(),
                                   .inv_rms = inv_rms.floats(),
                                   .dq_weight = dweights.floats(),
                                   .dk_weight = dweights.floats() + size};
      if (fused) forward.rotation = backward.rotation = rotation;
      run(backend, forward);
      if (!fused) rotate(y, false);
      if (!fused) rotate(gradient, true);
      run(backend, backward);
      return std::array{y.read(), gradient.read(), dweights.read()};
    };
    const auto fused = results(true);
    const auto apart = results(false);
    for (std::size_t i = 0; i < fused.size(); ++i) CHECK(fused[i].values == apart[i].values);
  });
}

TEST_CASE("the weights' gradients of the norm of heads accumulate", "[kernels][norms]") {
  for_each_case([](Backend& backend, const Case& c) {
    Result expected = expected_of(c);
    for (double& value : expected.dq_weight.values) value += 2.0;
    for (double& value : expected.dk_weight.values) value += 2.0;
    const Result result = run_both(backend, c, 2.0);
    check_close(result.dq_weight, expected.dq_weight, weight_bound(c));
    check_close(result.dk_weight, expected.dk_weight, weight_bound(c));
  });
}

TEST_CASE("a frozen weight of the norm of heads gets no gradient, and changes no other",
          "[kernels][norms]") {
  for_each_case([](Backend& backend, const Case& c) {
    const Result both = run_both(backend, c);
    for (const Trained trained : {Trained{.queries = false}, Trained{.keys = false},
                                  Trained{.queries = false, .keys = false}}) {
      const Result part = run_both(backend, c, std::nullopt, trained);
      const Matrix untouched = [&] {
        Matrix start(1, c.shape.head_size);
        for (double& value : start.values) value = 99.0;
        return start;
      }();
      CHECK(part.dx.values == both.dx.values);
      CHECK(part.dq_weight.values == (trained.queries ? both.dq_weight : untouched).values);
      CHECK(part.dk_weight.values == (trained.keys ? both.dk_weight : untouched).values);
    }
  });
}

TEST_CASE("rows are copied between strides, and nothing beside them", "[kernels][copy_rows]") {
  for_each_backend([](Backend& backend) {
    const Matrix from = random_in(DType::F32, 5, 7, 1);
    Matrix to(5, 9);
    for (double& value : to.values) value = 8.0;
    const DeviceMatrix x(backend, from, DType::F32, 2);
    const DeviceMatrix y(backend, to, DType::F32, 1);
    const std::int64_t element = size_of(DType::F32);
    run(backend, CopyRows{.rows = 5,
                          .row_bytes = 3 * element,
                          .x = x.floats() + 4,
                          .x_stride_bytes = x.stride() * element,
                          .y = y.floats() + 5,
                          .y_stride_bytes = y.stride() * element});
    for (std::int64_t row = 0; row < 5; ++row)
      for (std::int64_t i = 0; i < 3; ++i) to(row, 5 + i) = from(row, 4 + i);
    CHECK(y.read().values == to.values);
  });
}

}  // namespace meshplan::kernels::test
