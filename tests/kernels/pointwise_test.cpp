// activation, gated_activation, rope, add, accumulate, scale, fill and convert
#include "reference/pointwise.hpp"

#include "core/error.hpp"
#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr ActivationKind kKinds[] = {ActivationKind::Silu,     ActivationKind::Gelu,
                                     ActivationKind::GeluTanh, ActivationKind::SquaredRelu,
                                     ActivationKind::Relu,     ActivationKind::ClampedSilu,
                                     ActivationKind::Tanh};

/// x from -30 to 30, dense near 0.
Matrix activation_inputs(DType dtype) {
  Matrix x(1, 1003);
  for (std::int64_t i = 0; i < x.columns; ++i) {
    const double u = static_cast<double>(i - 501) / 501.0;
    x(0, i) = rounded(30.0 * u * u * u, dtype);
  }
  return x;
}

/// 8 ulp of max(|x|^2, |value|, 1): exp alone is 2, and GeluTanh's argument loses |x| more.
double activation_bound(DType dtype, double x) {
  const double magnitude = std::max({x * x, std::fabs(x), 1.0});
  return magnitude * (8 * 2 * kEps32 + stored_roundoff(dtype));
}

}  // namespace

TEST_CASE("activations and their slopes agree with libm", "[kernels][activation]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      const Matrix inputs = activation_inputs(dtype);
      const Matrix grads = random_in(dtype, 1, inputs.columns, 2);
      for (const ActivationKind kind : kKinds) {
        INFO(name_of(dtype) << " kind " << static_cast<int>(kind));
        const DeviceMatrix x(backend, inputs, dtype);
        const DeviceMatrix dy(backend, grads, dtype);
        const DeviceMatrix y(backend, 1, inputs.columns, dtype);
        const DeviceMatrix dx(backend, 1, inputs.columns, dtype);
        run(backend, ActivationForward{kind, inputs.columns, dtype, x.data(), y.data()});
        run(backend,
            ActivationBackward{kind, inputs.columns, dtype, dy.data(), x.data(), dx.data()});
        Matrix value = inputs;
        Matrix slope = inputs;
        for (std::int64_t i = 0; i < inputs.columns; ++i) {
          value(0, i) = reference::activation(kind, inputs(0, i));
          slope(0, i) = grads(0, i) * reference::activation_slope(kind, inputs(0, i));
        }
        const auto bound = [&](std::int64_t row, std::int64_t column) {
          return activation_bound(dtype, inputs(row, column));
        };
        check_close(y.read(), value, bound);
        check_close(dx.read(), slope, bound);
      }
    }
  });
}

TEST_CASE("GELU keeps relative accuracy in its negative tail", "[kernels][activation]") {
  for_each_backend([](Backend& backend) {
    Matrix inputs(1, 9);
    for (std::int64_t i = 0; i < 9; ++i) inputs(0, i) = -static_cast<double>(i + 1);
    const DeviceMatrix x(backend, inputs);
    const DeviceMatrix y(backend, 1, 9);
    run(backend, ActivationForward{ActivationKind::Gelu, 9, DType::F32, x.data(), y.data()});
    const Matrix actual = y.read();
    for (std::int64_t i = 0; i < 9; ++i) {
      const double expected = reference::activation(ActivationKind::Gelu, inputs(0, i));
      // exp(-x^2 / 2) turns the rounding of x^2 / 2 into x^2 / 2 relative error
      const double relative = (8.0 + inputs(0, i) * inputs(0, i)) * 2 * kEps32;
      CHECK(std::fabs(actual(0, i) - expected) <= relative * std::fabs(expected));
    }
  });
}

TEST_CASE("activations pass NaN on", "[kernels][activation]") {
  for_each_backend([](Backend& backend) {
    Matrix inputs(1, 1);
    inputs(0, 0) = std::numeric_limits<double>::quiet_NaN();
    for (const ActivationKind kind : kKinds) {
      const DeviceMatrix x(backend, inputs);
      const DeviceMatrix y(backend, 1, 1);
      run(backend, ActivationForward{kind, 1, DType::F32, x.data(), y.data()});
      CHECK(std::isnan(y.read()(0, 0)));
    }
  });
}

TEST_CASE("the activation slopes agree with finite differences", "[kernels][reference]") {
  for (const ActivationKind kind : kKinds) {
    for (const double x : {-3.3, -0.7, 0.4, 2.9}) {
      const double difference =
          (reference::activation(kind, x + 1e-5) - reference::activation(kind, x - 1e-5)) / 2e-5;
      CHECK(reference::activation_slope(kind, x) == Approx(difference).margin(1e-8));
    }
  }
}

TEST_CASE("gated activations multiply the gate's activation by up", "[kernels][gated_activation]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      for (const std::int64_t size : {5, 64, 77}) {
        for (const ActivationKind kind : {ActivationKind::Silu, ActivationKind::Gelu}) {
          const Matrix inputs = random_in(dtype, 9, 2 * size, 1, 3.0);
          const Matrix grads = random_in(dtype, 9, size, 2);
          const DeviceMatrix x(backend, inputs, dtype, row_padding(size, 4));
          const DeviceMatrix dy(backend, grads, dtype, row_padding(size, 3));
          const DeviceMatrix y(backend, 9, size, dtype, row_padding(size, 1));
          const DeviceMatrix dx(backend, 9, 2 * size, dtype, row_padding(size, 2));
          run(backend, GatedActivationForward{kind, 9, size, dtype, x.data(), x.stride(), y.data(),
                                              y.stride()});
          run(backend, GatedActivationBackward{kind, 9, size, dtype, dy.data(), dy.stride(),
                                               x.data(), x.stride(), dx.data(), dx.stride()});
          check_close(y.read(), reference::gated_activation(kind, inputs),
                      tolerance(dtype, 16, 9.0));
          check_close(dx.read(), reference::gated_activation_backward(kind, grads, inputs),
                      tolerance(dtype, 16, 9.0));
        }
      }
    }
  });
}

TEST_CASE("the gated unit of gpt-oss clamps gate and up", "[kernels][gated_activation]") {
  constexpr auto kKind = ActivationKind::ClampedSilu;
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      for (const std::int64_t size : {5, 64, 77}) {
        Matrix inputs = random_in(dtype, 9, 2 * size, 1, 10.0);  // 3 of 10 are beyond 7
        inputs(0, 0) = inputs(1, size) = 7.0;                    // not clamped yet
        inputs(2, size) = -7.0;
        const Matrix grads = random_in(dtype, 9, size, 2);
        const DeviceMatrix x(backend, inputs, dtype, row_padding(size, 4));
        const DeviceMatrix dy(backend, grads, dtype, row_padding(size, 3));
        const DeviceMatrix y(backend, 9, size, dtype, row_padding(size, 1));
        const DeviceMatrix dx(backend, 9, 2 * size, dtype, row_padding(size, 2));
        run(backend, GatedActivationForward{kKind, 9, size, dtype, x.data(), x.stride(), y.data(),
                                            y.stride()});
        run(backend, GatedActivationBackward{kKind, 9, size, dtype, dy.data(), dy.stride(),
                                             x.data(), x.stride(), dx.data(), dx.stride()});
        // |act(gate)| <= 7 and |up + 1| <= 8
        check_close(y.read(), reference::gated_activation(kKind, inputs),
                    tolerance(dtype, 16, 56.0));
        check_close(dx.read(), reference::gated_activation_backward(kKind, grads, inputs),
                    tolerance(dtype, 16, 56.0));
      }
    }
  });
}

TEST_CASE("the reference of gpt-oss's gated unit agrees with finite differences",
          "[kernels][reference]") {
  Matrix x(1, 8);
  x.values = {-3.0, 6.9, 7.1, 2.0, 0.5, -6.9, 7.2, -7.3};  // gates, then ups
  const Matrix weights = reference::random_matrix(1, 4, 3);
  const auto value = [](const Matrix& moved) {
    return reference::gated_activation(ActivationKind::ClampedSilu, moved);
  };
  check_close(reference::gated_activation_backward(ActivationKind::ClampedSilu, weights, x),
              reference::finite_difference(value, x, weights), 1e-7);
}

TEST_CASE("a gated activation's gradient may overwrite its input", "[kernels][gated_activation]") {
  for_each_backend([](Backend& backend) {
    const Matrix inputs = random_in(DType::F32, 3, 74, 1);
    const Matrix grads = random_in(DType::F32, 3, 37, 2);
    const DeviceMatrix x(backend, inputs);
    const DeviceMatrix dy(backend, grads);
    run(backend, GatedActivationBackward{ActivationKind::Silu, 3, 37, DType::F32, dy.data(), 37,
                                         x.data(), 74, x.data(), 74});
    check_close(x.read(), reference::gated_activation_backward(ActivationKind::Silu, grads, inputs),
                tolerance(DType::F32, 16, 1.0));
  });
}

TEST_CASE("rope rotates pairs by position and its inverse rotates back", "[kernels][rope]") {
  constexpr int kHeads = 3;
  constexpr double kBase = 10000.0;
  const bool by_rows = GENERATE(false, true);
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      for (const auto& [head_size, rope_size] : {std::pair{16, 16}, {64, 64}, {80, 20}, {6, 6}}) {
        // rows 5.. of sequences of 8, in the second half of a context of 16
        const RowPositions runs{.seq_len = 8, .first_row = 5, .first_position = 8};
        const DeviceVector<std::int32_t> listed(
            backend, std::vector<std::int32_t>{0, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15});
        const RowPositions rows{.seq_len = 16, .first_row = 1, .rows = listed.data()};
        const RowPositions positions = by_rows ? rows : runs;
        const Matrix inputs = random_in(dtype, 11, kHeads * head_size, 1);
        const DeviceMatrix x(backend, inputs, dtype, row_padding(head_size, 6));
        std::vector<float> host(static_cast<std::size_t>(16 * rope_size));
        std::vector<double> frequencies;
        for (int i = 0; i < rope_size / 2; ++i)
          frequencies.push_back(std::pow(kBase, -2.0 * i / rope_size));
        build_rope_table(host, 16, frequencies);
        const DeviceVector<float> table(backend, host);
        Rope op{.tokens = 11,
                .heads = kHeads,
                .head_size = head_size,
                .rope_size = rope_size,
                .positions = positions,
                .dtype = dtype,
                .x = x.data(),
                .x_stride = x.stride(),
                .table = table.data()};
        run(backend, op);
        const std::vector<std::int64_t> expected_positions = {13, 14, 15, 8,  9, 10,
                                                              11, 12, 13, 14, 15};
        const double bound = tolerance(dtype, 2, 2.0);
        check_close(x.read(),
                    reference::rope(inputs, expected_positions, head_size, rope_size, kBase),
                    bound);
        op.inverse = true;
        run(backend, op);
        check_close(x.read(), inputs, 2 * bound);
      }
    }
  });
}

TEST_CASE("a rope table's amplitude scales the rotation and its transpose", "[kernels][rope]") {
  for_each_backend([](Backend& backend) {
    constexpr double kAmplitude = 1.25;
    const Matrix inputs = random_in(DType::F32, 4, 8, 1);
    const DeviceMatrix x(backend, inputs, DType::F32, row_padding(8, 8));
    std::vector<float> host(4 * 8);
    build_rope_table(host, 4, std::vector<double>{1.0, 0.1, 0.01, 0.001}, kAmplitude);
    const DeviceVector<float> table(backend, host);
    Rope op{.tokens = 4,
            .heads = 1,
            .head_size = 8,
            .rope_size = 8,
            .positions = {.seq_len = 4},
            .dtype = DType::F32,
            .x = x.data(),
            .x_stride = x.stride(),
            .table = table.data()};
    run(backend, op);
    op.inverse = true;
    run(backend, op);
    // R^T R = 1: forward and backward together multiply by the amplitude's square.
    Matrix expected = inputs;
    for (double& value : expected.values) value *= kAmplitude * kAmplitude;
    check_close(x.read(), expected, tolerance(DType::F32, 4, 2.0));
  });
}

TEST_CASE("a rope table of the wrong size is refused", "[kernels][rope]") {
  std::vector<float> table(30);
  CHECK_THROWS_AS(build_rope_table(table, 4, std::vector<double>(4)), InvariantError);
  CHECK_THROWS_AS(build_rope_table(table, 2, std::vector<double>(7)), InvariantError);
  CHECK_THROWS_AS(build_rope_table({}, 2, {}), InvariantError);
}

TEST_CASE("add, accumulate, scale and fill are exact", "[kernels][elementwise]") {
  for_each_backend([](Backend& backend) {
    for (const std::int64_t count : {1, 31, 10000}) {
      // multiples of 1/64 below 2 have at most 7 significant bits: sums of two are exact in bf16
      // too
      Matrix a = reference::random_matrix(1, count, 1);
      Matrix b = reference::random_matrix(1, count, 2);
      for (double& value : a.values) value = std::round(value * 32.0) / 64.0;
      for (double& value : b.values) value = std::round(value * 32.0) / 64.0;
      Matrix sum = a;
      Matrix tripled_b = b;
      for (std::size_t i = 0; i < sum.values.size(); ++i) {
        sum.values[i] += b.values[i];
        tripled_b.values[i] *= 2.0;
      }
      for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        const DeviceMatrix device_a(backend, a, dtype);
        const DeviceMatrix device_b(backend, b, dtype);
        const DeviceMatrix out(backend, 1, count, dtype);
        run(backend, Add{count, dtype, device_a.data(), device_b.data(), out.data()});
        check_close(out.read(), sum, 0.0);
        run(backend, Scale{count, dtype, 2.0F, device_b.data(), out.data()});
        check_close(out.read(), tripled_b, 0.0);
        const DeviceMatrix total(backend, a);
        run(backend, Accumulate{count, DType::F32, total.data(), dtype, device_b.data()});
        check_close(total.read(), sum, 0.0);
        run(backend, Add{count, dtype, device_a.data(), device_b.data(), device_a.data()});
        check_close(device_a.read(), sum, 0.0);
        run(backend, Fill{count, dtype, out.data(), -1.5F});
        for (const double value : out.read().values) REQUIRE(value == -1.5);
      }
    }
  });
}

TEST_CASE("conversion to bf16 rounds to the nearest even", "[kernels][convert]") {
  // 1 + 2^-8 lies midway between 1 and 1 + 2^-7 (even: 1); 1 + 3 * 2^-8 between 1 + 2^-7 and
  // 1 + 2^-6 (even: the latter).
  const std::vector<float> values = {1.0F,
                                     1.0F + 0x1p-8F,
                                     1.0F + 0x1p-8F + 0x1p-20F,
                                     1.0F + 0x3p-8F,
                                     -1.0F - 0x1p-8F,
                                     std::numeric_limits<float>::infinity(),
                                     std::numeric_limits<float>::max(),
                                     0x1p-140F};
  const std::vector<float> expected = {1.0F,
                                       1.0F,
                                       1.0F + 0x1p-7F,
                                       1.0F + 0x1p-6F,
                                       -1.0F,
                                       std::numeric_limits<float>::infinity(),
                                       std::numeric_limits<float>::infinity(),
                                       0.0F};
  for_each_backend([&](Backend& backend) {
    std::vector<float> with_nan = values;
    with_nan.push_back(std::numeric_limits<float>::quiet_NaN());
    const auto count = static_cast<std::int64_t>(with_nan.size());
    const DeviceVector<float> from(backend, with_nan);
    const DeviceVector<std::uint16_t> half(backend, with_nan.size());
    const DeviceVector<float> back(backend, with_nan.size());
    run(backend, Convert{count, DType::F32, from.data(), DType::BF16, half.data()});
    run(backend, Convert{count, DType::BF16, half.data(), DType::F32, back.data()});
    const std::vector<float> result = back.read();
    for (std::size_t i = 0; i + 1 < expected.size(); ++i) CHECK(result[i] == expected[i]);
    CHECK(std::fabs(result[expected.size() - 1]) <= 0x1p-133F);  // the smallest bf16 subnormal
    CHECK(std::isnan(result.back()));
  });
}

TEST_CASE("every fp16 number widens exactly and comes back", "[kernels][convert]") {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t bits = 0; bits < all.size(); ++bits)
    all[bits] = static_cast<std::uint16_t>(bits);
  const auto count = static_cast<std::int64_t>(all.size());
  for_each_backend([&](Backend& backend) {
    const DeviceVector<std::uint16_t> half(backend, all);
    const DeviceVector<float> wide(backend, all.size());
    const DeviceVector<std::uint16_t> back(backend, all.size());
    run(backend, Convert{count, DType::F16, half.data(), DType::F32, wide.data()});
    run(backend, Convert{count, DType::F32, wide.data(), DType::F16, back.data()});
    const std::vector<float> values = wide.read();
    const std::vector<std::uint16_t> again = back.read();
    int wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float expected = value_of_half(all[i], DType::F16);
      const bool right = std::isnan(expected)
                             ? std::isnan(values[i]) && (again[i] & 0x7fff) > 0x7c00
                             : values[i] == expected && again[i] == all[i];
      if (!right) ++wrong;
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("fp32 is rounded to the nearest fp16, ties to even", "[kernels][convert]") {
  // Between any two neighbours: a little above the lower, the tie, a little below the upper.
  std::vector<float> values = {65519.0F, 65520.0F,  -65520.0F, 1e30F, 0x1p-25F, 0x1.8p-25F,
                               0x1p-26F, -0x1p-25F, 0x1p-149F, 0.0F,  -0.0F};
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = value_of_half(bits, DType::F16);
    const float high = value_of_half(static_cast<std::uint16_t>(bits + 1), DType::F16);
    const float tie = low + (high - low) / 2;
    values.insert(values.end(), {std::nextafter(tie, low), tie, -std::nextafter(tie, high)});
  }
  const auto count = static_cast<std::int64_t>(values.size());
  for_each_backend([&](Backend& backend) {
    const DeviceVector<float> from(backend, values);
    const DeviceVector<std::uint16_t> half(backend, values.size());
    run(backend, Convert{count, DType::F32, from.data(), DType::F16, half.data()});
    const std::vector<std::uint16_t> result = half.read();
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (result[i] != half_of(values[i], DType::F16)) ++wrong;
    CHECK(wrong == 0);
  });
}

}  // namespace meshplan::kernels::test
