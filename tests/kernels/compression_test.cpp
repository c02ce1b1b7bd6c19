// attention_merge and gradient_compression
#include <algorithm>

#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

/// Softmax attention of one query row over keys [begin, end) of `scores`, values of width E.
struct Partial {
  Matrix o, lse;
};
Partial attend(const Matrix& scores, const Matrix& values, std::int64_t begin, std::int64_t end) {
  Partial result{Matrix(scores.rows, values.columns), Matrix(scores.rows, 1)};
  for (std::int64_t t = 0; t < scores.rows; ++t) {
    double sum = 0.0;
    for (std::int64_t s = begin; s < end; ++s) sum += std::exp(scores(t, s));
    result.lse(t, 0) = std::log(sum);  // -infinity without keys
    for (std::int64_t s = begin; s < end; ++s)
      for (std::int64_t i = 0; i < values.columns; ++i)
        result.o(t, i) += std::exp(scores(t, s)) / sum * values(s, i);
  }
  return result;
}

}  // namespace

TEST_CASE("merged attention over parts of the keys is attention over all", "[kernels][merge]") {
  for_each_backend([](Backend& backend) {
    for (const std::int64_t head_size : {64, 33}) {
      constexpr std::int64_t kTokens = 9;
      constexpr std::int64_t kKeys = 20;
      const Matrix scores = reference::random_matrix(kTokens, kKeys, 1, 4.0);
      const Matrix values = reference::random_matrix(kKeys, head_size, 2);
      const Partial all = attend(scores, values, 0, kKeys);
      // no key, then 7, then 13, then none again
      const Partial none = attend(scores, values, 0, 0);
      const DeviceMatrix o(backend, none.o, DType::F32, row_padding(head_size, 1));
      const DeviceMatrix lse(backend, none.lse);
      for (const auto& [begin, end] : {std::pair{0, 7}, {7, 20}, {20, 20}}) {
        const Partial part = attend(scores, values, begin, end);
        const DeviceMatrix other(backend, part.o, DType::F32, row_padding(head_size, 3));
        const DeviceMatrix other_lse(backend, part.lse);
        const AttentionMerge op{.tokens = kTokens,
                                .heads = 1,
                                .head_size = static_cast<int>(head_size),
                                .o = o.data(),
                                .o_stride = o.stride(),
                                .lse = lse.floats(),
                                .other_o = other.data(),
                                .other_o_stride = other.stride(),
                                .other_lse = other_lse.floats()};
        run(backend, op);
      }
      check_close(o.read(), all.o, tolerance(DType::F32, 8, 1.0) * 4);
      check_close(lse.read(), all.lse, tolerance(DType::F32, 8, 8.0));
    }
  });
}

TEST_CASE("int8 gradients and their error add up to the gradient", "[kernels][compression]") {
  for_each_backend([](Backend& backend) {
    constexpr std::int64_t kCount = 1003;
    constexpr int kBlock = 64;
    constexpr std::size_t kBlocks = (kCount + kBlock - 1) / kBlock;
    const Matrix gradient = random_in(DType::F32, 1, kCount, 1, 5.0);
    const Matrix before = random_in(DType::F32, 1, kCount, 2, 0.05);
    const DeviceMatrix device_gradient(backend, gradient);
    const DeviceMatrix error(backend, before);
    const DeviceVector<std::int8_t> quantized(backend, kCount);
    const DeviceVector<float> scales(backend, kBlocks);
    run(backend, QuantizeInt8{kCount, kBlock, device_gradient.floats(), error.floats(),
                              quantized.data(), scales.data()});
    const DeviceMatrix out(backend, 1, kCount);
    run(backend, DequantizeInt8{kCount, kBlock, quantized.data(), scales.data(), out.floats()});
    const Matrix sent = out.read();
    const Matrix kept = error.read();
    const std::vector<float> scale = scales.read();
    for (std::int64_t i = 0; i < kCount; ++i) {
      const auto block = static_cast<std::size_t>(i / kBlock);
      double max = 0.0;
      for (std::int64_t j = i / kBlock * kBlock; j < std::min(kCount, (i / kBlock + 1) * kBlock);
           ++j)
        max = std::max(max, std::fabs(gradient(0, j) + before(0, j)));
      REQUIRE(double{scale[block]} == Approx(max / 127.0).epsilon(4 * kEps32));
      // half a step, and what rounding does to 127 steps
      REQUIRE(std::fabs(kept(0, i)) <= double{scale[block]} * (0.5 + 127 * 4 * kEps32));
      REQUIRE(std::fabs(sent(0, i) + kept(0, i) - gradient(0, i) - before(0, i)) <=
              4 * kEps32 * max);
    }
    run(backend,
        DequantizeInt8{kCount, kBlock, quantized.data(), scales.data(), out.floats(), true});
    Matrix twice = sent;
    for (double& value : twice.values) value *= 2.0;
    check_close(out.read(), twice, 0.0);
  });
}

TEST_CASE("a block with a number that is not finite shows it", "[kernels][compression]") {
  for_each_backend([](Backend& backend) {
    std::vector<float> values(96, 1.0F);
    values[40] = std::numeric_limits<float>::infinity();
    values[70] = std::numeric_limits<float>::quiet_NaN();
    std::fill(values.begin(), values.begin() + 32, 0.0F);
    const DeviceVector<float> gradient(backend, values);
    const DeviceVector<std::int8_t> quantized(backend, 96);
    const DeviceVector<float> scales(backend, 3);
    run(backend, QuantizeInt8{96, 32, gradient.data(), nullptr, quantized.data(), scales.data()});
    CHECK(scales.read()[0] == 0.0F);  // all zero: nothing to divide by
    CHECK(std::isnan(scales.read()[1]));
    CHECK(std::isnan(scales.read()[2]));
    const DeviceVector<float> read(backend, 96);
    run(backend, DequantizeInt8{96, 32, quantized.data(), scales.data(), read.data()});
    for (std::size_t i = 0; i < 96; ++i)
      CHECK(std::isnan(read.read()[i]) == (i == 40 || i == 70));  // others are 0, as gaps must be
  });
}

TEST_CASE("errors are kept in units that the gradients' scale does not change",
          "[kernels][compression]") {
  constexpr std::size_t kCount = 96;
  constexpr float kScale = 1024.0F;
  for_each_backend([](Backend& backend) {
    const Matrix random = random_in(DType::F32, 1, kCount, 1);
    const Matrix lost = random_in(DType::F32, 1, kCount, 2, 0.01);
    std::vector<float> plain, scaled, before;
    for (std::size_t i = 0; i < kCount; ++i) {
      plain.push_back(static_cast<float>(random.values[i]));
      scaled.push_back(plain.back() * kScale);
      before.push_back(static_cast<float>(lost.values[i]));
    }
    const DeviceVector<float> applied(backend, std::vector<float>{kScale / 8});
    const DeviceVector<float> wanted(backend, std::vector<float>{1.0F / 8});
    const ErrorUnit unit{applied.data(), wanted.data()};
    std::vector<std::vector<float>> errors, sent;
    for (const bool scales : {false, true}) {
      const DeviceVector<float> gradient(backend, scales ? scaled : plain);
      const DeviceVector<float> quantized_error(backend, before);
      const DeviceVector<float> chosen_error(backend, before);
      const DeviceVector<std::int8_t> quantized(backend, kCount);
      const DeviceVector<float> steps(backend, 3);
      const DeviceVector<std::int32_t> indices(backend, 12);
      const DeviceVector<float> values(backend, 12);
      run(backend, QuantizeInt8{kCount, 32, gradient.data(), quantized_error.data(),
                                quantized.data(), steps.data(), scales ? unit : ErrorUnit{}});
      run(backend, TopKSelect{kCount, 32, 4, gradient.data(), chosen_error.data(), indices.data(),
                              values.data(), scales ? unit : ErrorUnit{}});
      errors.push_back(quantized_error.read());
      errors.push_back(chosen_error.read());
      sent.push_back(steps.read());
      sent.push_back(values.read());
    }
    // A power of two leaves no trace.
    CHECK(errors[2] == errors[0]);
    CHECK(errors[3] == errors[1]);
    for (const std::size_t which : {std::size_t{0}, std::size_t{1}})
      for (std::size_t i = 0; i < sent[which].size(); ++i)
        CHECK(sent[which + 2][i] == kScale * sent[which][i]);
  });
}

TEST_CASE("errors settle after a step that counts and come back after another",
          "[kernels][compression]") {
  for_each_backend([](Backend& backend) {
    const DeviceVector<float> error(backend, {1.0F, NAN, 3.0F});
    const DeviceVector<float> settled(backend, {4.0F, 5.0F, 6.0F});
    const DeviceVector<float> skipped(backend, std::vector<float>{NAN});
    const DeviceVector<float> counts(backend, std::vector<float>{0.5F});
    run(backend, SettleErrors{3, error.data(), settled.data(), skipped.data()});
    const std::vector<float> old = {4.0F, 5.0F, 6.0F};
    CHECK(error.read() == old);
    CHECK(settled.read() == old);
    const DeviceVector<float> next(backend, {7.0F, 8.0F, 9.0F});
    run(backend, SettleErrors{3, next.data(), settled.data(), counts.data()});
    const std::vector<float> newer = {7.0F, 8.0F, 9.0F};
    CHECK(next.read() == newer);
    CHECK(settled.read() == newer);
  });
}

TEST_CASE("top-k keeps the largest elements of every block", "[kernels][compression]") {
  for_each_backend([](Backend& backend) {
    for (const auto& [count, block, keep] :
         {std::tuple<std::int64_t, int, int>{1, 1, 1}, {1003, 64, 5}, {5000, 4096, 700}}) {
      Matrix gradient = random_in(DType::F32, 1, count, 1);
      for (double& value : gradient.values) value = std::round(value * 20.0) / 20.0;  // ties
      for (double& value : gradient.values) value = rounded(value, DType::F32);
      const Matrix before(1, count);
      const DeviceMatrix device_gradient(backend, gradient);
      const DeviceMatrix error(backend, before);
      const std::int64_t blocks = (count + block - 1) / block;
      const DeviceVector<std::int32_t> indices(backend, static_cast<std::size_t>(blocks * keep), 7);
      const DeviceVector<float> values(backend, static_cast<std::size_t>(blocks * keep), 7.0F);
      run(backend, TopKSelect{count, block, keep, device_gradient.floats(), error.floats(),
                              indices.data(), values.data()});
      std::vector<std::int32_t> expected;
      for (std::int64_t b = 0; b < blocks; ++b) {
        std::vector<std::int32_t> order;
        for (std::int64_t i = b * block; i < std::min(count, (b + 1) * block); ++i)
          order.push_back(static_cast<std::int32_t>(i));
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t i, std::int32_t j) {
          return std::fabs(gradient(0, i)) > std::fabs(gradient(0, j));
        });
        if (std::ssize(order) > keep) order.resize(static_cast<std::size_t>(keep));
        std::sort(order.begin(), order.end());
        order.resize(static_cast<std::size_t>(keep), -1);
        expected.insert(expected.end(), order.begin(), order.end());
      }
      CHECK(indices.read() == expected);
      const DeviceMatrix total(backend, error.read());
      run(backend, TopKScatterAdd{.count = gradient.columns,
                                  .entries = blocks * keep,
                                  .indices = indices.data(),
                                  .values = values.data(),
                                  .out = total.floats()});
      check_close(total.read(), gradient, 0.0);  // what was sent and what was kept
    }
  });
}

}  // namespace meshplan::kernels::test
