#include "kernels/mixers/short_convolution.hpp"

#include "kernels/support.hpp"
#include "reference/mixers.hpp"

namespace meshplan::kernels::test {

namespace {

struct Case {
  DType dtype;
  ShortConvolutionShape shape;
  bool with_bias;
  std::vector<std::int32_t> positions = {};
  Matrix x = random_in(dtype, shape.tokens, shape.channels, 1);
  Matrix weight = random_in(dtype, shape.channels, shape.taps, 2);
  Matrix bias = with_bias ? random_in(dtype, 1, shape.channels, 3) : Matrix();
  Matrix dy = random_in(dtype, shape.tokens, shape.channels, 4);

  Matrix forward(const Matrix& at_x, const Matrix& at_weight, const Matrix& at_bias) const {
    return reference::short_convolution(shape, at_x, at_weight, at_bias, positions);
  }
};

/// Documents of 1, 2, 3, ... tokens.
std::vector<std::int32_t> growing_documents(std::int64_t tokens) {
  std::vector<std::int32_t> positions;
  for (std::int32_t length = 1; std::ssize(positions) < tokens; ++length)
    for (std::int32_t i = 0; i < length && std::ssize(positions) < tokens; ++i)
      positions.push_back(i);
  return positions;
}

/// Sequences shorter than the taps, of several blocks of tokens, of several tiles of channels.
const std::vector<ShortConvolutionShape> kShapes = {
    {.tokens = 1, .seq_len = 1, .channels = 1, .taps = 4},
    {.tokens = 6, .seq_len = 2, .channels = 5, .taps = 4},
    {.tokens = 4, .seq_len = 2, .channels = 300, .taps = 4},
    {.tokens = 150, .seq_len = 75, .channels = 3, .taps = 4},
    {.tokens = 20, .seq_len = 20, .channels = 21, .taps = 3, .silu = false},
    {.tokens = 12, .seq_len = 6, .channels = 17, .taps = 2},
    {.tokens = 5, .seq_len = 5, .channels = 9, .taps = 1}};

template <class Body>
void for_each_case(const Body& body) {
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const ShortConvolutionShape& shape : kShapes)
      for (const bool documents : {false, true}) {
        INFO(name_of(dtype) << " T " << shape.tokens << " C " << shape.channels << " K "
                            << shape.taps << (documents ? " documents" : ""));
        Case c{dtype, shape, documents};
        if (documents) c.positions = growing_documents(shape.tokens);
        body(c);
      }
}

struct Result {
  Matrix y, dx, dweight, dbias;
};

/// @param before  what the gradients of weight and bias hold; they accumulate if it is given
/// @param inputs, weights  which gradients are computed
Result run_both(Backend& backend, const Case& c, std::optional<double> before = std::nullopt,
                bool inputs = true, bool weights = true) {
  const auto& [tokens, seq_len, channels, taps, silu] = c.shape;
  const DeviceMatrix x(backend, c.x, c.dtype, row_padding(channels, 3));
  const DeviceMatrix weight(backend, c.weight, c.dtype);
  const DeviceMatrix bias(backend, c.with_bias ? c.bias : Matrix(1, 1), c.dtype);
  const DeviceVector<std::int32_t> positions(
      backend, c.positions.empty() ? std::vector<std::int32_t>(1) : c.positions);
  const DeviceMatrix dy(backend, c.dy, c.dtype, 1);
  const DeviceMatrix y(backend, tokens, channels, c.dtype, row_padding(channels, 2));
  const DeviceMatrix dx(backend, tokens, channels, c.dtype, 5);
  Matrix dweight_start(channels, taps), dbias_start(1, channels);
  for (double& value : dweight_start.values) value = before.value_or(99.0);
  for (double& value : dbias_start.values) value = before.value_or(99.0);
  const DeviceMatrix dweight(backend, dweight_start);
  const DeviceMatrix dbias(backend, dbias_start);
  run(backend,
      ShortConvolutionForward{.shape = c.shape,
                              .dtype = c.dtype,
                              .x = x.data(),
                              .x_stride = x.stride(),
                              .weight = weight.data(),
                              .bias = c.with_bias ? bias.data() : nullptr,
                              .positions = c.positions.empty() ? nullptr : positions.data(),
                              .y = y.data(),
                              .y_stride = y.stride()});
  run(backend,
      ShortConvolutionBackward{.shape = c.shape,
                               .dtype = c.dtype,
                               .dy = dy.data(),
                               .dy_stride = dy.stride(),
                               .x = x.data(),
                               .x_stride = x.stride(),
                               .weight = weight.data(),
                               .bias = c.with_bias ? bias.data() : nullptr,
                               .positions = c.positions.empty() ? nullptr : positions.data(),
                               .dx = inputs ? dx.data() : nullptr,
                               .dx_stride = dx.stride(),
                               .dweight = weights ? dweight.floats() : nullptr,
                               .dbias = weights && c.with_bias ? dbias.floats() : nullptr,
                               .accumulate = before.has_value()});
  return {y.read(), dx.read(), dweight.read(), dbias.read()};
}

/// Error of a sum of `terms` products, each of one gradient whose own error is that of a
/// pre-activation.
double bound_of(DType dtype, std::int64_t terms) {
  return tolerance(dtype, terms + 16, 1.5 * static_cast<double>(terms)) + 1e-7;
}

}  // namespace

TEST_CASE("a short convolution sees the tokens before its own in sequence and document",
          "[kernels][mixers]") {
  for_each_case([](const Case& c) {
    const Matrix expected = c.forward(c.x, c.weight, c.bias);
    for_each_backend([&](Backend& backend) {
      check_close(run_both(backend, c).y, expected, bound_of(c.dtype, c.shape.taps + 1));
    });
  });
}

TEST_CASE("the gradients of a short convolution agree with finite differences",
          "[kernels][mixers]") {
  for_each_case([](const Case& c) {
    const Matrix dx = reference::finite_difference(
        [&](const Matrix& at) { return c.forward(at, c.weight, c.bias); }, c.x, c.dy);
    const Matrix dweight = reference::finite_difference(
        [&](const Matrix& at) { return c.forward(c.x, at, c.bias); }, c.weight, c.dy);
    const Matrix dbias = reference::finite_difference(
        [&](const Matrix& at) { return c.forward(c.x, c.weight, at); }, c.bias, c.dy);
    for_each_backend([&](Backend& backend) {
      const Result result = run_both(backend, c);
      check_close(result.dx, dx, bound_of(c.dtype, c.shape.taps));
      check_close(result.dweight, dweight, bound_of(DType::F32, c.shape.tokens));
      if (c.with_bias) check_close(result.dbias, dbias, bound_of(DType::F32, c.shape.tokens));
    });
  });
}

TEST_CASE("gradients of a short convolution repeat to the bit, alone and together",
          "[kernels][mixers]") {
  for_each_case([](const Case& c) {
    for_each_backend([&](Backend& backend) {
      const Result both = run_both(backend, c);
      const Result again = run_both(backend, c);
      CHECK(again.dx.values == both.dx.values);
      CHECK(again.dweight.values == both.dweight.values);
      CHECK(again.dbias.values == both.dbias.values);
      CHECK(run_both(backend, c, std::nullopt, true, false).dx.values == both.dx.values);
      CHECK(run_both(backend, c, std::nullopt, false, true).dweight.values == both.dweight.values);
    });
  });
}

TEST_CASE("gradients of a short convolution's weights accumulate", "[kernels][mixers]") {
  for_each_case([](const Case& c) {
    for_each_backend([&](Backend& backend) {
      Result expected = run_both(backend, c);
      for (double& value : expected.dweight.values) value += 2.0;
      for (double& value : expected.dbias.values) value += 2.0;
      const Result result = run_both(backend, c, 2.0);
      check_close(result.dweight, expected.dweight, bound_of(DType::F32, c.shape.tokens + 2));
      if (c.with_bias)
        check_close(result.dbias, expected.dbias, bound_of(DType::F32, c.shape.tokens + 2));
    });
  });
}

}  // namespace meshplan::kernels::test
