#include "kernels/support.hpp"
#include "reference/norms.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr double kEpsilon = 1e-5;

struct Result {
  Matrix y, dx, dweight, dbias;
};

struct Case {
  DType dtype;
  std::int64_t tokens;
  std::int64_t size;
  double offset = 0.0;  // added to x: a mean far from zero
  Matrix x = shifted(random_in(dtype, tokens, size, 1, 2.0), offset, dtype);
  Matrix weight = random_in(dtype, 1, size, 2);
  Matrix bias = random_in(dtype, 1, size, 5);
  Matrix dy = random_in(dtype, tokens, size, 3);

  static Matrix shifted(Matrix m, double by, DType dtype) {
    for (double& value : m.values) value = rounded(value + by, dtype);
    return m;
  }
};

Result run_case(Backend& backend, const Case& c, bool with_bias, bool accumulate_twice) {
  const DeviceMatrix x(backend, c.x, c.dtype, row_padding(c.size, 3));
  const DeviceMatrix weight(backend, c.weight, c.dtype);
  const DeviceMatrix bias(backend, c.bias, c.dtype);
  const DeviceMatrix dy(backend, c.dy, c.dtype, row_padding(c.size, 1));
  const DeviceMatrix y(backend, c.tokens, c.size, c.dtype, row_padding(c.size, 2));
  const DeviceMatrix dx(backend, c.tokens, c.size, c.dtype, row_padding(c.size, 2));
  const DeviceMatrix mean(backend, c.tokens, 1);
  const DeviceMatrix inv_std(backend, c.tokens, 1);
  const DeviceMatrix dweight(backend, 1, c.size);
  const DeviceMatrix dbias(backend, 1, c.size);
  run(backend, LayerNormForward{.tokens = c.tokens,
                                .size = c.size,
                                .epsilon = static_cast<float>(kEpsilon),
                                .dtype = c.dtype,
                                .x = x.data(),
                                .x_stride = x.stride(),
                                .weight = weight.data(),
                                .bias = with_bias ? bias.data() : nullptr,
                                .y = y.data(),
                                .y_stride = y.stride(),
                                .mean = mean.floats(),
                                .inv_std = inv_std.floats()});
  LayerNormBackward backward{.tokens = c.tokens,
                             .size = c.size,
                             .dtype = c.dtype,
                             .dy = dy.data(),
                             .dy_stride = dy.stride(),
                             .x = x.data(),
                             .x_stride = x.stride(),
                             .weight = weight.data(),
                             .mean = mean.floats(),
                             .inv_std = inv_std.floats(),
                             .dx = dx.data(),
                             .dx_stride = dx.stride(),
                             .dweight = dweight.floats(),
                             .dbias = dbias.floats()};
  run(backend, backward);
  if (accumulate_twice) {
    backward.accumulate = true;
    backward.dx = nullptr;
    run(backend, backward);
  }
  return {y.read(), dx.read(), dweight.read(), dbias.read()};
}

}  // namespace

TEST_CASE("layer norm agrees with its definition, forward and backward", "[kernels][layer_norm]") {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (const std::int64_t tokens : {1, 7, 130}) {
      for (const std::int64_t size : {8, 33, 130, 640, 1032, 3072, 6144, 8192}) {
        if (tokens * size > 140'000) continue;
        INFO(name_of(dtype) << " T " << tokens << " D " << size);
        const Case c{dtype, tokens, size};
        const double bound = tolerance(dtype, size, 4.0 * std::sqrt(static_cast<double>(size)));
        const double sums = static_cast<double>(tokens) * std::sqrt(3.0);  // |dy n| <= sqrt(3)
        const auto expected = reference::layer_norm_backward(c.dy, c.x, c.weight, kEpsilon);
        for (const bool with_bias : {true, false}) {
          const Matrix y =
              reference::layer_norm(c.x, c.weight, with_bias ? c.bias : Matrix{}, kEpsilon);
          for_each_backend([&](Backend& backend) {
            const Result result = run_case(backend, c, with_bias, false);
            check_close(result.y, y, bound);
            check_close(result.dx, expected.dx, bound);
            check_close(result.dweight, expected.dweight,
                        tolerance(DType::F32, tokens + size, sums));
            check_close(result.dbias, expected.dbias, tolerance(DType::F32, tokens, sums));
          });
        }
      }
    }
  }
}

TEST_CASE("layer norm of a sum keeps it, with the bits of an addition before",
          "[kernels][layer_norm]") {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (const std::int64_t size : {8, 33, 768, 1032, 6144}) {
      INFO(name_of(dtype) << " D " << size);
      const Case c{dtype, 7, size};
      for_each_backend([&](Backend& backend) {
        const DeviceMatrix x(backend, c.x, dtype);
        const DeviceMatrix residual(backend, c.dy, dtype);
        const DeviceMatrix weight(backend, c.weight, dtype);
        const DeviceMatrix bias(backend, c.bias, dtype);
        const DeviceMatrix statistics(backend, 2, c.tokens);
        const auto normed = [&](const DeviceMatrix& in, const DeviceMatrix* sum) {
          const DeviceMatrix y(backend, c.tokens, size, dtype);
          LayerNormForward op{.tokens = c.tokens,
                              .size = size,
                              .epsilon = static_cast<float>(kEpsilon),
                              .dtype = dtype,
                              .x = in.data(),
                              .x_stride = in.stride(),
                              .weight = weight.data(),
                              .bias = bias.data(),
                              .y = y.data(),
                              .y_stride = y.stride(),
                              .mean = statistics.floats(),
                              .inv_std = statistics.floats() + c.tokens};
          if (sum != nullptr) {
            op.residual = residual.data();
            op.sum = sum->data();
          }
          run(backend, op);
          return std::pair(y.read(), statistics.read());
        };
        const DeviceMatrix added(backend, c.tokens, size, dtype);
        run(backend, Add{c.tokens * size, dtype, x.data(), residual.data(), added.data()});
        const DeviceMatrix sum(backend, c.tokens, size, dtype);
        const auto [y, found] = normed(x, &sum);
        const auto [expected_y, expected] = normed(added, nullptr);
        CHECK(sum.read().values == added.read().values);
        CHECK(y.values == expected_y.values);
        CHECK(found.values == expected.values);
      });
    }
  }
}

TEST_CASE("layer norm keeps the variance of rows with a large mean", "[kernels][layer_norm]") {
  for_each_backend([](Backend& backend) {
    const Case c{DType::F32, 3, 256, 1000.0};
    // The mean is wrong by at most 256 eps * 1000 relative to a deviation near 1; a one-pass
    // variance would lose everything: 1000^2 eps = 0.06.
    check_close(run_case(backend, c, true, false).y,
                reference::layer_norm(c.x, c.weight, c.bias, kEpsilon), 256 * 1000 * kEps32);
  });
}

TEST_CASE("layer norm's parameter gradients accumulate", "[kernels][layer_norm]") {
  for_each_backend([](Backend& backend) {
    const Case c{DType::F32, 9, 33};
    const Result once = run_case(backend, c, true, false);
    const Result twice = run_case(backend, c, true, true);
    Matrix doubled = once.dweight;
    for (double& value : doubled.values) value *= 2.0;
    check_close(twice.dweight, doubled, tolerance(DType::F32, 1, 10.0));
    doubled = once.dbias;
    for (double& value : doubled.values) value *= 2.0;
    check_close(twice.dbias, doubled, tolerance(DType::F32, 1, 10.0));
  });
}

}  // namespace meshplan::kernels::test
