#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr std::int64_t kCount = 1037;
constexpr double kRate = 0x1p-6;
constexpr double kDecay = 0x1p-4;
constexpr double kClip = 0.25;

/// The textbook loop in fp64 from zero state.
struct Adam {
  std::vector<double> master, m, v;
  void step(const std::vector<double>& gradient, int step, bool decoupled) {
    constexpr double beta1 = double{0.9F};
    constexpr double beta2 = double{0.95F};
    for (std::size_t i = 0; i < master.size(); ++i) {
      double g = gradient[i] * kClip;
      if (!decoupled) g += kDecay * master[i];
      m[i] = beta1 * m[i] + (1.0 - beta1) * g;
      v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
      const double m_hat = m[i] / (1.0 - std::pow(beta1, step));
      const double v_hat = v[i] / (1.0 - std::pow(beta2, step));
      const double decay = decoupled ? kDecay * master[i] : 0.0;
      master[i] -= kRate * (m_hat / (std::sqrt(v_hat) + double{1e-8F}) + decay);
    }
  }
};

}  // namespace

TEST_CASE("Adam follows the textbook loop over several steps", "[kernels][optimizer]") {
  for_each_backend([](Backend& backend) {
    for (const bool decoupled : {true, false}) {
      for (const DType weight_dtype : {DType::F32, DType::BF16, DType::F16}) {
        const Matrix start = random_in(DType::F32, 1, kCount, 1);
        Adam expected{start.values, std::vector<double>(kCount), std::vector<double>(kCount)};
        const DeviceMatrix master(backend, start);
        const DeviceVector<float> m(backend, kCount);
        const DeviceVector<float> v(backend, kCount);
        const DeviceVector<float> clip(backend, 1, static_cast<float>(kClip));
        const DeviceMatrix weight(backend, 1, kCount, weight_dtype);
        for (int step = 1; step <= 4; ++step) {
          const Matrix values =
              random_in(DType::F32, 1, kCount, static_cast<std::uint32_t>(10 + step));
          const DeviceMatrix gradient(backend, values);
          run(backend, AdamStep{.count = kCount,
                                .step = step,
                                .learning_rate = static_cast<float>(kRate),
                                .beta1 = 0.9F,
                                .beta2 = 0.95F,
                                .epsilon = 1e-8F,
                                .weight_decay = static_cast<float>(kDecay),
                                .decoupled = decoupled,
                                .master = master.floats(),
                                .m = m.data(),
                                .v = v.data(),
                                .gradient = gradient.floats(),
                                .gradient_scale = clip.data(),
                                .weight = weight.data(),
                                .weight_dtype = weight_dtype});
          expected.step(values.values, step, decoupled);
        }
        Matrix expected_master = start;
        expected_master.values = expected.master;
        // a few roundings of numbers below 1.1 a step; with L2 the gradient may nearly cancel, and
        // m / sqrt(v) amplifies its rounding
        const double bound = 4 * tolerance(DType::F32, decoupled ? 8 : 100, 1.1);
        check_close(master.read(), expected_master, bound);
        check_close(weight.read(), expected_master, bound + tolerance(weight_dtype, 0, 1.1));
        Matrix copied = master.read();
        for (double& value : copied.values) value = rounded(value, weight_dtype);
        check_close(weight.read(), copied, 0.0);
      }
    }
  });
}

TEST_CASE("Adam's first step moves by the learning rate", "[kernels][optimizer]") {
  // m_hat = g and v_hat = g^2, so the step is lr * sign(g) for any gradient: Kingma & Ba
  // section 2.1
  for_each_backend([](Backend& backend) {
    const DeviceVector<float> master(backend, {1.0F, 1.0F});
    const DeviceVector<float> m(backend, 2);
    const DeviceVector<float> v(backend, 2);
    const DeviceVector<float> gradient(backend, {3.0F, -0.001F});
    run(backend, AdamStep{.count = 2,
                          .step = 1,
                          .learning_rate = 0.125F,
                          .master = master.data(),
                          .m = m.data(),
                          .v = v.data(),
                          .gradient = gradient.data()});
    CHECK(std::fabs(double{master.read()[0]} - 0.875) <= 1e-6);
    CHECK(std::fabs(double{master.read()[1]} - 1.125) <= 1e-5);
  });
}

TEST_CASE("The step and the learning rate can lie in device memory", "[kernels][optimizer]") {
  // Values given beside the pointers must not count: with step 1000 or rate 9 the first step would
  // differ from lr * sign(g).
  for_each_backend([](Backend& backend) {
    const DeviceVector<float> adam(backend, {1.0F, 1.0F});
    const DeviceVector<float> sgd(backend, {1.0F, 1.0F});
    const DeviceVector<float> m(backend, 2);
    const DeviceVector<float> v(backend, 2);
    const DeviceVector<float> gradient(backend, {3.0F, -0.001F});
    const DeviceVector<std::int64_t> step(backend, std::size_t{1}, std::int64_t{1});
    const DeviceVector<float> rate(backend, std::size_t{1}, 0.125F);
    run(backend, AdamStep{.count = 2,
                          .step = 1000,
                          .learning_rate = 9.0F,
                          .step_at = step.data(),
                          .learning_rate_at = rate.data(),
                          .master = adam.data(),
                          .m = m.data(),
                          .v = v.data(),
                          .gradient = gradient.data()});
    CHECK(std::fabs(double{adam.read()[0]} - 0.875) <= 1e-6);
    CHECK(std::fabs(double{adam.read()[1]} - 1.125) <= 1e-5);
    run(backend, SgdStep{.count = 2,
                         .learning_rate = 9.0F,
                         .learning_rate_at = rate.data(),
                         .master = sgd.data(),
                         .gradient = gradient.data()});
    CHECK(sgd.read()[0] == 0.625F);
  });
}

TEST_CASE("SGD with momentum follows its recurrence", "[kernels][optimizer]") {
  for_each_backend([](Backend& backend) {
    // all numbers are short binary fractions: exact
    for (const bool nesterov : {false, true}) {
      const DeviceVector<float> master(backend, std::size_t{33}, 1.0F);
      const DeviceVector<float> velocity(backend, std::size_t{33});
      const DeviceVector<float> gradient(backend, std::size_t{33}, 2.0F);
      const DeviceVector<float> half(backend, std::size_t{1}, 0.5F);
      SgdStep op{.count = 33,
                 .learning_rate = 0.25F,
                 .momentum = 0.5F,
                 .weight_decay = 1.0F,
                 .nesterov = nesterov,
                 .master = master.data(),
                 .velocity = velocity.data(),
                 .gradient = gradient.data(),
                 .gradient_scale = half.data()};
      run(backend, op);
      // g = 1 + 1 = 2, velocity 2; plain: 1 - 0.5; nesterov: 1 - 0.25 (2 + 1)
      CHECK(master.read()[32] == (nesterov ? 0.25F : 0.5F));
      run(backend, op);
      // plain: g = 1.5, velocity 2.5, 0.5 - 0.625; nesterov: g = 1.25, velocity 2.25,
      // 0.25 - 0.25 (1.25 + 1.125)
      CHECK(velocity.read()[0] == (nesterov ? 2.25F : 2.5F));
      CHECK(master.read()[0] == (nesterov ? -0.34375F : -0.125F));
      op.velocity = nullptr;
      op.nesterov = false;
      op.weight_decay = 0.0F;
      run(backend, op);
      CHECK(master.read()[0] == (nesterov ? -0.59375F : -0.375F));
    }
  });
}

TEST_CASE("the squared norm is the same bits for any number of threads and instruction set",
          "[kernels][optimizer]") {
  const Matrix values = random_in(DType::F32, 1, 3 * 16384 + 77, 1);
  double expected = 0.0;
  for (const double value : values.values) expected += value * value;
  std::vector<double> sums;
  for_each_backend([&](Backend& backend) {
    const DeviceMatrix x(backend, values);
    const DeviceVector<double> sum(backend, 1, 1.0);
    run(backend, SquaredNorm{values.columns, x.floats(), sum.data(), false});
    sums.push_back(sum.read()[0]);
    CHECK(sums.back() == Approx(expected).epsilon(1e-13));
    CHECK(sums.back() == sums.front());
    run(backend, SquaredNorm{1, x.floats(), sum.data(), true});
    CHECK(sum.read()[0] == Approx(expected + values(0, 0) * values(0, 0)).epsilon(1e-13));
  });
}

TEST_CASE("the clip coefficient shrinks only norms above the limit", "[kernels][optimizer]") {
  for_each_backend([](Backend& backend) {
    const auto coefficient = [&](double sum_of_squares) {
      const DeviceVector<double> sum(backend, 1, sum_of_squares);
      const DeviceVector<float> result(backend, std::size_t{1});
      const DeviceVector<float> norm(backend, std::size_t{1});
      run(backend, ClipCoefficient{sum.data(), 2.0F, result.data(), norm.data()});
      CHECK((std::isnan(sum_of_squares) || double{norm.read()[0]} == std::sqrt(sum_of_squares)));
      return result.read()[0];
    };
    CHECK(coefficient(1.0) == 1.0F);
    CHECK(coefficient(0.0) == 1.0F);
    CHECK(std::fabs(double{coefficient(64.0)} - 0.25) < 1e-6);
    CHECK(std::isnan(coefficient(std::numeric_limits<double>::quiet_NaN())));
    CHECK(std::isnan(coefficient(std::numeric_limits<double>::infinity())));
  });
}

TEST_CASE("a loss scale is undone in the norm and in what the gradients are multiplied by",
          "[kernels][optimizer]") {
  for_each_backend([](Backend& backend) {
    const DeviceVector<float> result(backend, std::size_t{1});
    const DeviceVector<float> norm(backend, std::size_t{1});
    const auto coefficient = [&](double sum_of_squares, float applied, float wanted) {
      const DeviceVector<double> sum(backend, 1, sum_of_squares);
      const DeviceVector<float> scale(backend, 1, applied);
      const DeviceVector<float> aim(backend, 1, wanted);
      run(backend, ClipCoefficient{.sum_of_squares = sum.data(),
                                   .max_norm = 2.0F,
                                   .coefficient = result.data(),
                                   .norm = norm.data(),
                                   .applied_scale = scale.data(),
                                   .wanted_scale = aim.data()});
      return result.read()[0];
    };
    // Gradients 1024 times too large: a norm of 8192 is one of 8, which is clipped to 2.
    CHECK(coefficient(8192.0 * 8192.0, 8.0F, 8.0F / 1024) == Approx(0.25 / 1024).epsilon(1e-6));
    CHECK(norm.read()[0] == 8.0F);
    CHECK(coefficient(1024.0 * 1024.0, 1024.0F, 1.0F) == 1.0F / 1024);  // 1 is not clipped
    CHECK(coefficient(64.0, 0.5F, 0.5F) == coefficient(64.0, 1.0F, 1.0F));
    CHECK(std::isnan(coefficient(std::numeric_limits<double>::infinity(), 8.0F, 1.0F)));
  });
}

TEST_CASE("a step whose gradient scale is NaN is skipped where asked", "[kernels][optimizer]") {
  for_each_backend([](Backend& backend) {
    for (const bool skips : {true, false}) {
      const Matrix start = random_in(DType::F32, 1, kCount, 1);
      const DeviceMatrix master(backend, start);
      const DeviceMatrix other(backend, start);
      const DeviceMatrix gradient(backend, random_in(DType::F32, 1, kCount, 2));
      const DeviceVector<float> m(backend, kCount);
      const DeviceVector<float> v(backend, kCount);
      const DeviceVector<float> velocity(backend, kCount);
      const DeviceVector<std::uint16_t> weight(backend, kCount, 7);
      const DeviceVector<float> scale(backend, 1, std::numeric_limits<float>::quiet_NaN());
      run(backend, AdamStep{.count = kCount,
                            .learning_rate = 0.1F,
                            .master = master.floats(),
                            .m = m.data(),
                            .v = v.data(),
                            .gradient = gradient.floats(),
                            .gradient_scale = scale.data(),
                            .weight = weight.data(),
                            .weight_dtype = DType::F16,
                            .skips_nan_scale = skips});
      run(backend, SgdStep{.count = kCount,
                           .learning_rate = 0.1F,
                           .momentum = 0.9F,
                           .master = other.floats(),
                           .velocity = velocity.data(),
                           .gradient = gradient.floats(),
                           .gradient_scale = scale.data(),
                           .skips_nan_scale = skips});
      INFO("skips " << skips);
      CHECK((master.read().values == start.values) == skips);
      CHECK((other.read().values == start.values) == skips);
      CHECK((m.read() == std::vector<float>(kCount, 0.0F)) == skips);
      CHECK((velocity.read() == std::vector<float>(kCount, 0.0F)) == skips);
      CHECK((weight.read() == std::vector<std::uint16_t>(kCount, 7)) == skips);
    }
  });
}

}  // namespace meshplan::kernels::test
