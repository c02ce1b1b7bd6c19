#include "kernels/support.hpp"
#include "reference/norms.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr double kEpsilon = 1e-5;

struct Case {
  DType dtype;
  std::int64_t tokens;
  std::int64_t size;
  Matrix x = random_in(dtype, tokens, size, 1, 3.0);
  Matrix weight = random_in(dtype, 1, size, 2);
  Matrix dy = random_in(dtype, tokens, size, 3);
};

template <class Body>
void for_each_case(const Body& body) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (const std::int64_t tokens : {1, 7, 130}) {
      for (const std::int64_t size : {8, 33, 130, 640, 1032, 3072, 8192, 12'288}) {
        if (tokens * size > 140'000) continue;
        INFO(name_of(dtype) << " T " << tokens << " D " << size);
        const Case c{dtype, tokens, size};
        for_each_backend([&](Backend& backend) { body(backend, c); });
      }
    }
  }
}

/// |n| <= sqrt(D), so y and dx are of this size at most (times 1 / rms, which is near 1 / sqrt(3)).
double magnitude(const Case& c) {
  return 4.0 * std::sqrt(static_cast<double>(c.size));
}

struct Result {
  Matrix y, dx, dweight;
};

Result run_both(Backend& backend, const Case& c, bool together) {
  const DeviceMatrix x(backend, c.x, c.dtype, row_padding(c.size, 3));
  const DeviceMatrix weight(backend, c.weight, c.dtype);
  const DeviceMatrix dy(backend, c.dy, c.dtype, row_padding(c.size, 1));
  const DeviceMatrix y(backend, c.tokens, c.size, c.dtype, row_padding(c.size, 2));
  const DeviceMatrix dx(backend, c.tokens, c.size, c.dtype, row_padding(c.size, 2));
  const DeviceMatrix inv_rms(backend, c.tokens, 1);
  const DeviceMatrix dweight(backend, 1, c.size);
  run(backend, RmsNormForward{.tokens = c.tokens,
                              .size = c.size,
                              .epsilon = static_cast<float>(kEpsilon),
                              .dtype = c.dtype,
                              .x = x.data(),
                              .x_stride = x.stride(),
                              .weight = weight.data(),
                              .y = y.data(),
                              .y_stride = y.stride(),
                              .inv_rms = inv_rms.floats()});
  RmsNormBackward backward{.tokens = c.tokens,
                           .size = c.size,
                           .dtype = c.dtype,
                           .dy = dy.data(),
                           .dy_stride = dy.stride(),
                           .x = x.data(),
                           .x_stride = x.stride(),
                           .weight = weight.data(),
                           .inv_rms = inv_rms.floats(),
                           .dx = dx.data(),
                           .dx_stride = dx.stride(),
                           .dweight = dweight.floats()};
  if (together) {
    run(backend, backward);
  } else {
    backward.dweight = nullptr;
    run(backend, backward);
    backward.dweight = dweight.floats();
    backward.dx = nullptr;
    run(backend, backward);
  }
  return {y.read(), dx.read(), dweight.read()};
}

}  // namespace

TEST_CASE("RMS norm agrees with its definition, forward and backward", "[kernels][rms_norm]") {
  for_each_case([](Backend& backend, const Case& c) {
    const Result result = run_both(backend, c, true);
    const auto expected = reference::rms_norm_backward(c.dy, c.x, c.weight, kEpsilon);
    const double bound = tolerance(c.dtype, c.size, magnitude(c));
    check_close(result.y, reference::rms_norm(c.x, c.weight, kEpsilon), bound);
    check_close(result.dx, expected.dx, bound);
    check_close(
        result.dweight, expected.dweight,
        tolerance(DType::F32, c.tokens + c.size, static_cast<double>(c.tokens) * std::sqrt(3.0)));
  });
}

TEST_CASE("RMS norm of a sum keeps it, with the bits of an addition before",
          "[kernels][rms_norm]") {
  for_each_case([](Backend& backend, const Case& c) {
    const Matrix other = random_in(c.dtype, c.tokens, c.size, 9, 3.0);
    const DeviceMatrix x(backend, c.x, c.dtype);
    const DeviceMatrix residual(backend, other, c.dtype);
    const DeviceMatrix weight(backend, c.weight, c.dtype);
    const auto normed = [&](const DeviceMatrix& in, const DeviceMatrix* sum) {
      const DeviceMatrix y(backend, c.tokens, c.size, c.dtype, row_padding(c.size, 2));
      const DeviceMatrix inv_rms(backend, c.tokens, 1);
      RmsNormForward op{.tokens = c.tokens,
                        .size = c.size,
                        .epsilon = static_cast<float>(kEpsilon),
                        .dtype = c.dtype,
                        .x = in.data(),
                        .x_stride = in.stride(),
                        .weight = weight.data(),
                        .y = y.data(),
                        .y_stride = y.stride(),
                        .inv_rms = inv_rms.floats()};
      if (sum != nullptr) {
        op.residual = residual.data();
        op.sum = sum->data();
      }
      run(backend, op);
      return std::pair(y.read(), inv_rms.read());
    };
    const DeviceMatrix added(backend, c.tokens, c.size, c.dtype);
    run(backend, Add{c.tokens * c.size, c.dtype, x.data(), residual.data(), added.data()});
    const DeviceMatrix sum(backend, c.tokens, c.size, c.dtype);
    const auto [y, inv_rms] = normed(x, &sum);
    const auto [expected_y, expected_inv_rms] = normed(added, nullptr);
    CHECK(sum.read().values == added.read().values);
    CHECK(y.values == expected_y.values);
    CHECK(inv_rms.values == expected_inv_rms.values);
    normed(x, &x);  // in place
    CHECK(x.read().values == added.read().values);
  });
}

// More than 48 KiB of shared memory at 12,288; all of a block's at 57,600 (docs/cuda.md).
TEST_CASE("RMS norm has room for the sums of its widest rows", "[kernels][rms_norm]") {
  const Case c{DType::BF16, 1, 57'600};
  for_each_backend([&](Backend& backend) {
    const Result result = run_both(backend, c, true);
    const auto expected = reference::rms_norm_backward(c.dy, c.x, c.weight, kEpsilon);
    check_close(result.dweight, expected.dweight,
                tolerance(DType::F32, c.tokens + c.size, std::sqrt(3.0)));
  });
}

TEST_CASE("RMS norm's gradients are the same bits together and apart", "[kernels][rms_norm]") {
  for_each_case([](Backend& backend, const Case& c) {
    const Result together = run_both(backend, c, true);
    const Result apart = run_both(backend, c, false);
    CHECK(together.dx.values == apart.dx.values);
    CHECK(together.dweight.values == apart.dweight.values);
  });
}

// 17 blocks and more: sums of sums. The emulator runs blocks in another order each time.
TEST_CASE("RMS norm's gradients are the same bits every time", "[kernels][rms_norm]") {
  for (const std::int64_t size : {33, 128, 1032}) {
    const Case c{DType::BF16, size < 1000 ? 1200 : 130, size};
    for_each_backend([&](Backend& backend) {
      const Result first = run_both(backend, c, true);
      for (int again = 0; again < 3; ++again) {
        const Result next = run_both(backend, c, true);
        CHECK(next.dx.values == first.dx.values);
        CHECK(next.dweight.values == first.dweight.values);
      }
    });
  }
}

TEST_CASE("RMS norm's weight gradient accumulates", "[kernels][rms_norm]") {
  for_each_backend([](Backend& backend) {
    // one token, x = (3, 4): rms^2 = 12.5, n = (3, 4) / sqrt(12.5)
    Matrix row(1, 2);
    row.values = {3.0, 4.0};
    Matrix ones(1, 2);
    ones.values = {1.0, 1.0};
    Matrix before(1, 2);
    before.values = {10.0, 20.0};
    const DeviceMatrix x(backend, row);
    const DeviceMatrix dy(backend, ones);
    const DeviceMatrix dweight(backend, before);
    const DeviceVector<float> inv_rms(backend, 1, static_cast<float>(1.0 / std::sqrt(12.5)));
    run(backend, RmsNormBackward{.tokens = 1,
                                 .size = 2,
                                 .dy = dy.data(),
                                 .dy_stride = 2,
                                 .x = x.data(),
                                 .x_stride = 2,
                                 .weight = dy.data(),
                                 .inv_rms = inv_rms.data(),
                                 .dweight = dweight.floats(),
                                 .accumulate = true});
    Matrix expected(1, 2);
    expected.values = {10.0 + 3.0 / std::sqrt(12.5), 20.0 + 4.0 / std::sqrt(12.5)};
    check_close(dweight.read(), expected, 4e-6);
  });
}

TEST_CASE("RMS norm adds its input gradient to a residual's in place", "[kernels][rms_norm]") {
  for_each_backend([](Backend& backend) {
    // as above: dx = inv_rms (1 - 3 * 3.5 / 12.5, 1 - 4 * 3.5 / 12.5) = inv_rms (0.16, -0.12)
    Matrix row(1, 2);
    row.values = {3.0, 4.0};
    Matrix ones(1, 2);
    ones.values = {1.0, 1.0};
    Matrix before(1, 2);
    before.values = {10.0, 20.0};
    const double inv = 1.0 / std::sqrt(12.5);
    const DeviceMatrix x(backend, row);
    const DeviceMatrix dy(backend, ones);
    const DeviceMatrix stream(backend, before);
    const DeviceVector<float> inv_rms(backend, 1, static_cast<float>(inv));
    run(backend, RmsNormBackward{.tokens = 1,
                                 .size = 2,
                                 .dy = dy.data(),
                                 .dy_stride = 2,
                                 .x = x.data(),
                                 .x_stride = 2,
                                 .weight = dy.data(),
                                 .inv_rms = inv_rms.data(),
                                 .dx = stream.data(),
                                 .dx_stride = 2,
                                 .residual = stream.data()});
    Matrix expected(1, 2);
    expected.values = {10.0 + 0.16 * inv, 20.0 - 0.12 * inv};
    check_close(stream.read(), expected, 4e-6);
  });
}

TEST_CASE("the norm references agree with finite differences", "[kernels][reference]") {
  const Matrix x = reference::random_matrix(3, 5, 1, 2.0);
  const Matrix weight = reference::random_matrix(1, 5, 2);
  const Matrix bias = reference::random_matrix(1, 5, 3);
  const Matrix dy = reference::random_matrix(3, 5, 4);
  const auto rms = reference::rms_norm_backward(dy, x, weight, kEpsilon);
  check_close(
      rms.dx,
      reference::finite_difference(
          [&](const Matrix& at) { return reference::rms_norm(at, weight, kEpsilon); }, x, dy),
      1e-8);
  check_close(
      rms.dweight,
      reference::finite_difference(
          [&](const Matrix& at) { return reference::rms_norm(x, at, kEpsilon); }, weight, dy),
      1e-8);
  const auto layer = reference::layer_norm_backward(dy, x, weight, kEpsilon);
  check_close(
      layer.dx,
      reference::finite_difference(
          [&](const Matrix& at) { return reference::layer_norm(at, weight, bias, kEpsilon); }, x,
          dy),
      1e-8);
  check_close(layer.dweight,
              reference::finite_difference(
                  [&](const Matrix& at) { return reference::layer_norm(x, at, bias, kEpsilon); },
                  weight, dy),
              1e-8);
  check_close(layer.dbias,
              reference::finite_difference(
                  [&](const Matrix& at) { return reference::layer_norm(x, weight, at, kEpsilon); },
                  bias, dy),
              1e-8);
}

}  // namespace meshplan::kernels::test
