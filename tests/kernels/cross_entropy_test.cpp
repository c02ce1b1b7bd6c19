#include "reference/cross_entropy.hpp"

#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kWords = 37;
const std::vector<std::int32_t> kTargets = {0, 36, kIgnoredTarget, 18, 9};
constexpr float kScale = 0.125F;

struct Result {
  std::vector<float> loss;
  double sum = 0.0;
  Matrix dlogits;  // all shards side by side, padding cut off
};

/// The vocabulary padded to a multiple of `num_shards` * 8 and split; padded columns hold huge
/// logits, which must not count.
Result run_sharded(Backend& backend, const Matrix& logits, DType dtype, std::int64_t num_shards,
                   float softcap = 0, double weight = 1) {
  const std::int64_t columns = (kWords + num_shards * 8 - 1) / (num_shards * 8) * 8;
  const DeviceVector<std::int32_t> targets(backend, kTargets);
  const DeviceVector<float> stats(
      backend, static_cast<std::size_t>(num_shards * kTokens * kCrossEntropyStats));
  std::vector<std::unique_ptr<DeviceMatrix>> shards;
  const auto valid = [&](std::int64_t shard) {
    return std::clamp<std::int64_t>(kWords - shard * columns, 0, columns);
  };
  for (std::int64_t s = 0; s < num_shards; ++s) {
    Matrix local(kTokens, columns);
    for (double& value : local.values) value = 512.0;
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t i = 0; i < valid(s); ++i) local(t, i) = logits(t, s * columns + i);
    shards.push_back(
        std::make_unique<DeviceMatrix>(backend, local, dtype, num_shards == 2 ? 8 : 3));
    run(backend, CrossEntropyLocal{.tokens = kTokens,
                                   .columns = columns,
                                   .valid = valid(s),
                                   .vocab_begin = s * columns,
                                   .dtype = dtype,
                                   .logits = shards.back()->data(),
                                   .logits_stride = shards.back()->stride(),
                                   .targets = targets.data(),
                                   .softcap = softcap,
                                   .stats = stats.data() + s * kTokens * kCrossEntropyStats});
  }
  const DeviceVector<float> loss(backend, kTokens);
  const DeviceVector<float> lse(backend, kTokens);
  const DeviceVector<double> sum(backend, 1, 100.0);
  run(backend, CrossEntropyCombine{kTokens, num_shards, stats.data(), targets.data(), loss.data(),
                                   lse.data()});
  run(backend, SumLoss{kTokens, loss.data(), sum.data(), false, weight});
  const DeviceVector<float> scale(backend, 1, kScale);
  Result result{loss.read(), sum.read()[0], Matrix(kTokens, kWords)};
  for (std::int64_t s = 0; s < num_shards; ++s) {
    DeviceMatrix& shard = *shards[static_cast<std::size_t>(s)];
    run(backend, CrossEntropyBackward{.tokens = kTokens,
                                      .columns = columns,
                                      .valid = valid(s),
                                      .vocab_begin = s * columns,
                                      .dtype = dtype,
                                      .logits = shard.data(),
                                      .dlogits = shard.data(),
                                      .logits_stride = shard.stride(),
                                      .targets = targets.data(),
                                      .lse = lse.data(),
                                      .softcap = softcap,
                                      .scale = scale.data(),
                                      .weight = static_cast<float>(weight)});
    const Matrix local = shard.read();
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t i = 0; i < columns; ++i) {
        if (i < valid(s))
          result.dlogits(t, s * columns + i) = local(t, i);
        else
          CHECK(local(t, i) == 0.0);
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("cross entropy over 1, 2 and 4 vocabulary shards agrees with the definition",
          "[kernels][cross_entropy]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      const Matrix logits = random_in(dtype, kTokens, kWords, 1, 8.0);
      const auto losses = reference::cross_entropy(logits, kTargets);
      double total = 0.0;
      for (const double loss : losses) total += loss;
      for (const std::int64_t num_shards : {1, 2, 4}) {
        INFO(name_of(dtype) << ", " << num_shards << " shards");
        const Result result = run_sharded(backend, logits, dtype, num_shards);
        // |loss| <= 2 * 8 + log(37) < 20
        for (std::size_t t = 0; t < losses.size(); ++t)
          CHECK(std::fabs(double{result.loss[t]} - losses[t]) <=
                tolerance(DType::F32, kWords, 20.0));
        CHECK(std::fabs(result.sum - total) <= tolerance(DType::F32, kWords, 100.0));
        check_close(result.dlogits,
                    reference::cross_entropy_backward(logits, kTargets, double{kScale}),
                    tolerance(dtype, kWords, 20.0 * double{kScale}));
      }
    }
  });
}

TEST_CASE("cross entropy of capped logits agrees with the definition", "[kernels][cross_entropy]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
      for (const float softcap : {3.0F, 30.0F}) {
        const Matrix logits = random_in(dtype, kTokens, kWords, 1, 8.0);
        const auto losses = reference::cross_entropy(logits, kTargets, double{softcap});
        for (const std::int64_t num_shards : {1, 4}) {
          INFO(name_of(dtype) << ", cap " << softcap << ", " << num_shards << " shards");
          const Result result = run_sharded(backend, logits, dtype, num_shards, softcap);
          for (std::size_t t = 0; t < losses.size(); ++t)
            CHECK(std::fabs(double{result.loss[t]} - losses[t]) <=
                  tolerance(DType::F32, kWords, 20.0));
          check_close(
              result.dlogits,
              reference::cross_entropy_backward(logits, kTargets, double{kScale}, double{softcap}),
              tolerance(dtype, kWords, 20.0 * double{kScale}));
        }
      }
  });
}

TEST_CASE("a loss among others is weighed, and so is its gradient", "[kernels][cross_entropy]") {
  for_each_backend([](Backend& backend) {
    const Matrix logits = random_in(DType::F32, kTokens, kWords, 1, 8.0);
    const Result plain = run_sharded(backend, logits, DType::F32, 2);
    const Result half = run_sharded(backend, logits, DType::F32, 2, 0, 0.5);
    CHECK(half.loss == plain.loss);
    CHECK(half.sum == 0.5 * plain.sum);
    for (std::size_t i = 0; i < half.dlogits.values.size(); ++i)
      CHECK(half.dlogits.values[i] == 0.5 * plain.dlogits.values[i]);
  });
}

TEST_CASE("ignored targets have no loss and no gradient", "[kernels][cross_entropy]") {
  for_each_backend([](Backend& backend) {
    const Result result =
        run_sharded(backend, random_in(DType::F32, kTokens, kWords, 1), DType::F32, 2);
    CHECK(result.loss[2] == 0.0F);
    for (std::int64_t i = 0; i < kWords; ++i) CHECK(result.dlogits(2, i) == 0.0);
  });
}

TEST_CASE("uniform logits lose log of the vocabulary", "[kernels][cross_entropy]") {
  for_each_backend([](Backend& backend) {
    Matrix logits(kTokens, kWords);
    for (double& value : logits.values) value = 300.0;  // exp would overflow
    const Result result = run_sharded(backend, logits, DType::F32, 2);
    CHECK(std::fabs(double{result.loss[0]} - std::log(37.0)) <= 300.0 * 2 * kEps32);
    // softmax 1/37, minus one at the target
    CHECK(std::fabs(result.dlogits(0, 1) - 0.125 / 37.0) <= 300.0 * 2 * kEps32 / 37.0);
    CHECK(std::fabs(result.dlogits(0, 0) - 0.125 * (1.0 / 37.0 - 1.0)) <= 300.0 * 2 * kEps32);
  });
}

TEST_CASE("sums of losses continue when asked", "[kernels][cross_entropy]") {
  for_each_backend([](Backend& backend) {
    const DeviceVector<float> loss(backend, {1.5F, 2.25F});
    const DeviceVector<double> sum(backend, 1, 10.0);
    run(backend, SumLoss{2, loss.data(), sum.data(), true});
    CHECK(sum.read()[0] == 13.75);
  });
}

TEST_CASE("the cross entropy reference agrees with finite differences", "[kernels][reference]") {
  const Matrix logits = reference::random_matrix(kTokens, kWords, 1, 3.0);
  Matrix ones(kTokens, 1);
  for (double& value : ones.values) value = 0.5;
  for (const double softcap : {0.0, 2.0}) {
    const auto losses = [&](const Matrix& at) {
      Matrix result(kTokens, 1);
      result.values = reference::cross_entropy(at, kTargets, softcap);
      return result;
    };
    check_close(reference::cross_entropy_backward(logits, kTargets, 0.5, softcap),
                reference::finite_difference(losses, logits, ones), 1e-8);
  }
}

}  // namespace meshplan::kernels::test
