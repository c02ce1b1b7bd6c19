// router, expert_dispatch and expert_exchange
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/float8_rows.hpp"
#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

struct Routing {
  RouterScore score;
  bool normalize;
  int experts;
  int top_k;
};
constexpr Routing kRoutings[] = {{RouterScore::Softmax, true, 8, 2},
                                 {RouterScore::Softmax, false, 5, 1},
                                 {RouterScore::Sigmoid, true, 64, 8},
                                 {RouterScore::Sigmoid, false, 33, 33}};
constexpr std::int64_t kTokens = 11;
constexpr double kScaling = 2.5;

struct Routed {
  Matrix scores;
  std::vector<std::int32_t> choices;
  Matrix probabilities;
};

/// The definition, in fp64. `choices` are given where the caller wants others than the best.
Routed route(const Routing& r, const Matrix& logits, const std::vector<double>& bias,
             std::vector<std::int32_t> choices = {}) {
  Routed result{Matrix(logits.rows, r.experts), choices, Matrix(logits.rows, r.top_k)};
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    double total = 0.0;
    for (int x = 0; x < r.experts; ++x) total += std::exp(logits(t, x));
    for (int x = 0; x < r.experts; ++x)
      result.scores(t, x) = r.score == RouterScore::Softmax ? std::exp(logits(t, x)) / total
                                                            : 1.0 / (1.0 + std::exp(-logits(t, x)));
    if (choices.empty()) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(r.experts));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return result.scores(t, a) + bias[static_cast<std::size_t>(a)] >
               result.scores(t, b) + bias[static_cast<std::size_t>(b)];
      });
      result.choices.insert(result.choices.end(), order.begin(), order.begin() + r.top_k);
    }
    double sum = 0.0;
    const auto chosen = [&](int k) {
      return result.scores(t, result.choices[static_cast<std::size_t>(t * r.top_k + k)]);
    };
    for (int k = 0; k < r.top_k; ++k) sum += chosen(k);
    for (int k = 0; k < r.top_k; ++k)
      result.probabilities(t, k) = kScaling * chosen(k) / (r.normalize ? sum : 1.0);
  }
  return result;
}

}  // namespace

TEST_CASE("the router chooses the best experts and weighs them", "[kernels][router]") {
  for_each_backend([](Backend& backend) {
    for (const Routing& r : kRoutings) {
      for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        INFO(name_of(dtype) << " X " << r.experts << " K " << r.top_k);
        const Matrix logits = random_in(dtype, kTokens, r.experts, 1, 3.0);
        const Matrix bias = random_in(dtype, 1, r.experts, 2, 0.3);
        const DeviceMatrix device_logits(backend, logits, dtype, 3);
        const DeviceMatrix device_bias(backend, bias, dtype);
        const DeviceMatrix scores(backend, kTokens, r.experts);
        const DeviceMatrix probabilities(backend, kTokens, r.top_k);
        const DeviceVector<std::int32_t> choices(backend,
                                                 static_cast<std::size_t>(kTokens * r.top_k), -1);
        const RouterForward op{.tokens = kTokens,
                               .experts = r.experts,
                               .top_k = r.top_k,
                               .score = r.score,
                               .normalize = r.normalize,
                               .scaling_factor = static_cast<float>(kScaling),
                               .dtype = dtype,
                               .logits = device_logits.data(),
                               .logits_stride = device_logits.stride(),
                               .bias_dtype = dtype,
                               .correction_bias = device_bias.data(),
                               .scores = scores.floats(),
                               .choices = choices.data(),
                               .probabilities = probabilities.floats()};
        run(backend, op);
        const Routed expected = route(r, logits, bias.values);
        CHECK(choices.read() == expected.choices);
        check_close(scores.read(), expected.scores, tolerance(DType::F32, r.experts, 1.0));
        check_close(probabilities.read(), expected.probabilities,
                    tolerance(DType::F32, 2 * r.experts, kScaling));
      }
    }
  });
}

TEST_CASE("equal scores go to the smaller expert", "[kernels][router]") {
  for_each_backend([](Backend& backend) {
    Matrix logits(1, 40);
    logits(0, 7) = 1.0;
    const DeviceMatrix device_logits(backend, logits);
    const DeviceMatrix scores(backend, 1, 40);
    const DeviceMatrix probabilities(backend, 1, 4);
    const DeviceVector<std::int32_t> choices(backend, 4, -1);
    const RouterForward op{.tokens = 1,
                           .experts = 40,
                           .top_k = 4,
                           .logits = device_logits.data(),
                           .logits_stride = 40,
                           .scores = scores.floats(),
                           .choices = choices.data(),
                           .probabilities = probabilities.floats()};
    run(backend, op);
    CHECK(choices.read() == std::vector<std::int32_t>{7, 0, 1, 2});
  });
}

TEST_CASE("the router's gradient agrees with finite differences", "[kernels][router]") {
  for_each_backend([](Backend& backend) {
    for (const Routing& r : kRoutings) {
      INFO("X " << r.experts << " K " << r.top_k);
      const Matrix logits = reference::random_matrix(kTokens, r.experts, 1, 2.0);
      const std::vector<double> no_bias(static_cast<std::size_t>(r.experts));
      const Routed routed = route(r, logits, no_bias);
      const Matrix dprobabilities = random_in(DType::F32, kTokens, r.top_k, 3);
      const Matrix dscores = random_in(DType::F32, kTokens, r.experts, 4);
      const DeviceMatrix scores(backend, routed.scores);
      const DeviceMatrix device_dp(backend, dprobabilities);
      const DeviceMatrix device_ds(backend, dscores);
      const DeviceVector<std::int32_t> choices(backend, routed.choices);
      const DeviceMatrix dlogits(backend, kTokens, r.experts, DType::F32, 2);
      const RouterBackward op{.tokens = kTokens,
                              .experts = r.experts,
                              .top_k = r.top_k,
                              .score = r.score,
                              .normalize = r.normalize,
                              .scaling_factor = static_cast<float>(kScaling),
                              .scores = scores.floats(),
                              .choices = choices.data(),
                              .dprobabilities = device_dp.floats(),
                              .dscores = device_ds.floats(),
                              .dlogits = dlogits.data(),
                              .dlogits_stride = dlogits.stride()};
      run(backend, op);
      const auto of_probabilities = reference::finite_difference(
          [&](const Matrix& at) { return route(r, at, no_bias, routed.choices).probabilities; },
          logits, dprobabilities);
      const auto of_scores = reference::finite_difference(
          [&](const Matrix& at) { return route(r, at, no_bias, routed.choices).scores; }, logits,
          dscores);
      Matrix expected = of_probabilities;
      for (std::size_t i = 0; i < expected.values.size(); ++i)
        expected.values[i] += of_scores.values[i];
      // the differences are good to 1e-8; |dprobability| <= 1, of 2.5 times a share
      check_close(dlogits.read(), expected, tolerance(DType::F32, 2 * r.experts, 8.0) + 1e-8);
    }
  });
}

TEST_CASE("tokens go to their experts' rows and come back weighted", "[kernels][dispatch]") {
  for_each_backend([](Backend& backend) {
    for (const auto& [tokens, experts, top_k] :
         {std::tuple<std::int64_t, int, int>{1, 3, 1}, {33, 5, 2}, {300, 300, 8}}) {
      const std::int64_t count = tokens * top_k;
      std::vector<std::int32_t> chosen;
      std::uint32_t state = 1;
      for (std::int64_t c = 0; c < count; ++c) {
        state = state * 1664525U + 1013904223U;
        chosen.push_back(static_cast<std::int32_t>((state >> 8) % static_cast<unsigned>(experts)));
      }
      const DeviceVector<std::int32_t> choices(backend, chosen);
      const DeviceVector<std::int32_t> offsets(backend, static_cast<std::size_t>(experts + 1), -1);
      const DeviceVector<std::int32_t> choice_of_row(backend, static_cast<std::size_t>(count), -1);
      const DeviceVector<std::int32_t> row_of_choice(backend, static_cast<std::size_t>(count), -1);
      const DispatchPlan plan{.tokens = tokens,
                              .experts = experts,
                              .top_k = top_k,
                              .choices = choices.data(),
                              .offsets = offsets.data(),
                              .choice_of_row = choice_of_row.data(),
                              .row_of_choice = row_of_choice.data()};
      run(backend, plan);
      std::vector<std::int32_t> order(static_cast<std::size_t>(count));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return chosen[static_cast<std::size_t>(a)] < chosen[static_cast<std::size_t>(b)];
      });
      std::vector<std::int32_t> inverse(order.size());
      for (std::size_t row = 0; row < order.size(); ++row)
        inverse[static_cast<std::size_t>(order[row])] = static_cast<std::int32_t>(row);
      CHECK(choice_of_row.read() == order);
      CHECK(row_of_choice.read() == inverse);
      const std::vector<std::int32_t> begins = offsets.read();
      for (std::int32_t x = 0; x <= experts; ++x)
        CHECK(begins[static_cast<std::size_t>(x)] ==
              std::count_if(chosen.begin(), chosen.end(), [&](std::int32_t e) { return e < x; }));

      for (const std::int64_t size : {8, 13}) {
        const DType dtype = size == 8 ? DType::BF16 : DType::F32;
        const Matrix inputs = random_in(dtype, tokens, size, 1);
        const Matrix weights = random_in(DType::F32, tokens, top_k, 2);
        const Matrix grads = random_in(dtype, tokens, size, 3);
        const DeviceMatrix x(backend, inputs, dtype, 1);
        const DeviceMatrix rows(backend, count, size, dtype, 2);
        const DeviceMatrix drows(backend, count, size, dtype, 2);
        const DeviceMatrix y(backend, tokens, size, dtype, 3);
        const DeviceMatrix dx(backend, tokens, size, dtype);
        const DeviceMatrix dy(backend, grads, dtype, 3);
        const DeviceMatrix probabilities(backend, weights);
        const DeviceMatrix dprobabilities(backend, tokens, top_k);
        run(backend, DispatchForward{tokens, top_k, size, dtype, choice_of_row.data(), x.data(),
                                     x.stride(), rows.data(), rows.stride()});
        run(backend,
            CombineForward{tokens, top_k, size, dtype, row_of_choice.data(), probabilities.floats(),
                           rows.data(), rows.stride(), y.data(), y.stride()});
        run(backend, CombineBackward{tokens, top_k, size, dtype, row_of_choice.data(),
                                     probabilities.floats(), rows.data(), dy.data(), dy.stride(),
                                     drows.data(), rows.stride(), dprobabilities.floats()});
        run(backend, DispatchBackward{tokens, top_k, size, dtype, row_of_choice.data(),
                                      drows.data(), drows.stride(), dx.data(), dx.stride()});
        // All rows of a token are copies of it, so the weights' sum is all that matters.
        Matrix expected_rows(count, size);
        Matrix expected_y(tokens, size);
        Matrix expected_dx(tokens, size);
        Matrix expected_dp(tokens, top_k);
        for (std::int64_t r = 0; r < count; ++r)
          for (std::int64_t i = 0; i < size; ++i)
            expected_rows(r, i) = inputs(order[static_cast<std::size_t>(r)] / top_k, i);
        for (std::int64_t t = 0; t < tokens; ++t) {
          double product = 0.0;
          for (std::int64_t i = 0; i < size; ++i) product += grads(t, i) * inputs(t, i);
          for (int k = 0; k < top_k; ++k) {
            expected_dp(t, k) = product;
            for (std::int64_t i = 0; i < size; ++i) {
              expected_y(t, i) += weights(t, k) * inputs(t, i);
              expected_dx(t, i) += weights(t, k) * grads(t, i);
            }
          }
        }
        check_close(rows.read(), expected_rows, 0.0);
        check_close(y.read(), expected_y, tolerance(dtype, top_k, top_k));
        // each row of drows is rounded, too
        check_close(dx.read(), expected_dx, 2 * tolerance(dtype, top_k, top_k));
        check_close(dprobabilities.read(), expected_dp,
                    tolerance(DType::F32, size, static_cast<double>(size)));
      }
    }
  });
}

namespace {

/// (rank, expert) blocks of 3 ranks and 2 experts, one of them empty.
const std::vector<std::int32_t> kReceived = {2, 0, 1, 3, 4, 1};
constexpr std::int64_t kReceivedRows = 11;

}  // namespace

TEST_CASE("exchange sizes are the sums over experts and over ranks", "[kernels][dispatch]") {
  for_each_backend([](Backend& backend) {
    const DeviceVector<std::int32_t> offsets(backend, {0, 5, 5, 6, 10, 10, 12});
    const DeviceVector<std::int32_t> sent(backend, 6, -1);
    const DeviceVector<std::int32_t> received(backend, kReceived);
    const DeviceVector<std::int32_t> rows(backend, 6, -1);
    const DeviceVector<std::int32_t> begins(backend, 3, -1);
    run(backend, ExpertCounts{.experts = 6, .offsets = offsets.data(), .counts = sent.data()});
    CHECK(sent.read() == std::vector<std::int32_t>{5, 0, 1, 4, 0, 2});
    run(backend, ExchangeSizes{.ranks = 3,
                               .local_experts = 2,
                               .sent = sent.data(),
                               .received = received.data(),
                               .rows = rows.data(),
                               .offsets = begins.data()});
    CHECK(rows.read() == std::vector<std::int32_t>{5, 5, 2, 2, 4, 5});
    CHECK(begins.read() == std::vector<std::int32_t>{0, 7, 11});
  });
}

TEST_CASE("received rows are regrouped by expert and back", "[kernels][dispatch]") {
  for_each_backend([](Backend& backend) {
    const DeviceVector<std::int32_t> received(backend, kReceived);
    Matrix arrived(kReceivedRows + 2, 3);  // two rows that nobody sent
    for (std::int64_t row = 0; row < arrived.rows; ++row)
      for (std::int64_t i = 0; i < 3; ++i) arrived(row, i) = static_cast<double>(10 * row + i);
    const DeviceMatrix from(backend, arrived);
    const DeviceMatrix grouped(backend, arrived.rows, 3);
    const DeviceMatrix back(backend, arrived.rows, 3);
    RegroupRows op{.ranks = 3,
                   .local_experts = 2,
                   .max_rows = arrived.rows,
                   .size = 3,
                   .received = received.data(),
                   .from = from.data(),
                   .to = grouped.data()};
    run(backend, op);
    // expert 0: rows of ranks 0 (0, 1), 1 (2), 2 (6 to 9); expert 1: ranks 1 (3 to 5), 2 (10)
    const std::vector<int> order = {0, 1, 2, 6, 7, 8, 9, 3, 4, 5, 10};
    Matrix expected(arrived.rows, 3);
    for (double& value : expected.values) value = 4096.0;  // unwritten (support.hpp)
    Matrix restored = expected;
    for (std::size_t row = 0; row < order.size(); ++row)
      for (std::int64_t i = 0; i < 3; ++i) {
        expected(static_cast<std::int64_t>(row), i) = arrived(order[row], i);
        restored(static_cast<std::int64_t>(row), i) = arrived(static_cast<std::int64_t>(row), i);
      }
    check_close(grouped.read(), expected, 0.0);
    op.to_experts = false;
    op.from = grouped.data();
    op.to = back.data();
    run(backend, op);
    check_close(back.read(), restored, 0.0);
  });
}

TEST_CASE("nodes of choices are named once, and told what they need", "[kernels][dispatch]") {
  for_each_backend([](Backend& backend) {
    // 8 experts on 4 nodes; 3 choices of 4 tokens, one of them dropped.
    const std::vector<std::int32_t> chosen = {5, 0, 4, 7, 6, 2, -1, 1, 1, 3, 5, 0};
    const DeviceVector<std::int32_t> choices(backend, chosen);
    const DeviceVector<std::int32_t> nodes(backend, 12, -7);
    run(backend, NodeChoices{.tokens = 4,
                             .experts = 8,
                             .nodes = 4,
                             .top_k = 3,
                             .choices = choices.data(),
                             .node_choices = nodes.data()});
    CHECK(nodes.read() == std::vector<std::int32_t>{2, 0, -1, 3, 1, -1, 0, -1, -1, 1, 2, 0});
    const DeviceVector<std::int32_t> offsets(backend, 5, -1), counts(backend, 4, -1);
    const DeviceVector<std::int32_t> choice_of_row(backend, 12, -7), row_of_choice(backend, 12, -7);
    run(backend, DispatchPlan{.tokens = 4,
                              .experts = 4,
                              .top_k = 3,
                              .choices = nodes.data(),
                              .offsets = offsets.data(),
                              .choice_of_row = choice_of_row.data(),
                              .row_of_choice = row_of_choice.data()});
    CHECK(offsets.read() == std::vector<std::int32_t>{0, 3, 5, 7, 8});
    Matrix probabilities(4, 3);
    for (std::size_t i = 0; i < 12; ++i) probabilities.values[i] = 0.5 + static_cast<double>(i);
    const DeviceMatrix weights(backend, probabilities);
    const DeviceMatrix row_weights(backend, 12, 3);
    const DeviceVector<std::int32_t> row_choices(backend, 36, -9);
    run(backend, NodeRoutingForward{.tokens = 4,
                                    .experts = 8,
                                    .nodes = 4,
                                    .top_k = 3,
                                    .choices = choices.data(),
                                    .probabilities = weights.floats(),
                                    .node_choices = nodes.data(),
                                    .choice_of_row = choice_of_row.data(),
                                    .row_choices = row_choices.data(),
                                    .row_probabilities = row_weights.floats()});
    // Rows of nodes 0 (tokens 0, 2, 3), 1 (1, 3), 2 (0, 3), 3 (1); the others have no token.
    const std::vector<std::int32_t> told = {-1, 0,  -1, -1, 1,  1,  -1, -1, 0,  -1, -1, 0,
                                            1,  -1, -1, 1,  -1, 0,  -1, 1,  -1, 1,  0,  -1,
                                            -9, -9, -9, -9, -9, -9, -9, -9, -9, -9, -9, -9};
    CHECK(row_choices.read() == told);
    const std::vector<std::int64_t> token = {0, 2, 3, 1, 3, 0, 3, 1};
    Matrix expected(12, 3);
    for (double& value : expected.values) value = 4096.0;  // unwritten (support.hpp)
    for (std::int64_t row = 0; row < 8; ++row)
      for (std::int64_t k = 0; k < 3; ++k)
        expected(row, k) = told[static_cast<std::size_t>(3 * row + k)] < 0
                               ? 0.0
                               : probabilities(token[static_cast<std::size_t>(row)], k);
    check_close(row_weights.read(), expected, 0.0);

    const DeviceMatrix back(backend, 4, 3);
    run(backend, NodeRoutingBackward{.tokens = 4,
                                     .experts = 8,
                                     .nodes = 4,
                                     .top_k = 3,
                                     .choices = choices.data(),
                                     .node_choices = nodes.data(),
                                     .row_of_choice = row_of_choice.data(),
                                     .drow_probabilities = row_weights.floats(),
                                     .dprobabilities = back.floats()});
    probabilities(2, 0) = 0;  // dropped
    check_close(back.read(), probabilities, 0.0);
  });
}

TEST_CASE("rows are packed in E4M3 with a scale for each 128 numbers", "[kernels][dispatch]") {
  constexpr std::int64_t kRows = 4, kSize = 300;  // two blocks, and a part of one
  Matrix numbers(kRows, kSize);
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t i = 0; i < kSize; ++i)
      numbers(row, i) = std::sin(0.7 * static_cast<double>(kSize * row + i)) *
                        std::pow(10.0, static_cast<double>(row + i / 128 - 1));
  for (std::int64_t i = 128; i < 256; ++i) numbers(1, i) = 0;  // a block without a largest number
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      const DeviceMatrix x(backend, numbers, dtype);
      const Matrix rounded = x.read();
      const DeviceMatrix packed(backend, kRows, float8_row_words(kSize));
      const DeviceMatrix back(backend, kRows, kSize, dtype);
      run(backend, PackFloat8Rows{.rows = kRows,
                                  .size = kSize,
                                  .dtype = dtype,
                                  .x = x.data(),
                                  .packed = packed.floats()});
      run(backend, UnpackFloat8Rows{.rows = kRows,
                                    .size = kSize,
                                    .dtype = dtype,
                                    .packed = packed.floats(),
                                    .x = back.data()});
      const Matrix found = back.read();
      for (std::int64_t row = 0; row < kRows; ++row)
        for (std::int64_t block = 0; block < float8_blocks(kSize); ++block) {
          const std::int64_t end = std::min(kSize, (block + 1) * kFloat8Block);
          double largest = 0;
          for (std::int64_t i = block * kFloat8Block; i < end; ++i)
            largest = std::max(largest, std::abs(rounded(row, i)));
          for (std::int64_t i = block * kFloat8Block; i < end; ++i) {
            // Half a unit: of a number's own exponent, or of the smallest one at this scale.
            const double bound =
                std::max(std::abs(rounded(row, i)) * 0x1p-4, largest / 448 * 0x1p-10);
            CAPTURE(row, i, rounded(row, i), largest);
            CHECK(std::abs(found(row, i) - rounded(row, i)) <=
                  bound + std::abs(rounded(row, i)) * 0x1p-7);
          }
        }
    }
  });
}

TEST_CASE("the gradients of dispatch and combine agree with finite differences",
          "[kernels][dispatch]") {
  constexpr std::int64_t kSize = 5;
  constexpr int kTopK = 2;
  // By definition: y[t] = sum over k of p[t, k] f_e(x[t]) with f_e(x) = (e + 1) x, so that the rows
  // of a token differ.
  const std::vector<std::int32_t> chosen = {2, 0, 1, 2, 0, 1, 2, 1};
  const std::int64_t tokens = 4;
  const auto layer = [&](const Matrix& x, const Matrix& p) {
    Matrix y(tokens, kSize);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (int k = 0; k < kTopK; ++k)
        for (std::int64_t i = 0; i < kSize; ++i)
          y(t, i) += p(t, k) * (chosen[static_cast<std::size_t>(t * kTopK + k)] + 1) * x(t, i);
    return y;
  };
  const Matrix x = random_in(DType::F32, tokens, kSize, 1);
  const Matrix p = random_in(DType::F32, tokens, kTopK, 2);
  const Matrix dy = random_in(DType::F32, tokens, kSize, 3);
  const Matrix dx =
      reference::finite_difference([&](const Matrix& at) { return layer(at, p); }, x, dy);
  const Matrix dp =
      reference::finite_difference([&](const Matrix& at) { return layer(x, at); }, p, dy);
  for_each_backend([&](Backend& backend) {
    const DeviceVector<std::int32_t> choices(backend, chosen);
    const DeviceVector<std::int32_t> offsets(backend, 4, -1);
    const DeviceVector<std::int32_t> choice_of_row(backend, 8, -1);
    const DeviceVector<std::int32_t> row_of_choice(backend, 8, -1);
    run(backend, DispatchPlan{.tokens = tokens,
                              .experts = 3,
                              .top_k = kTopK,
                              .choices = choices.data(),
                              .offsets = offsets.data(),
                              .choice_of_row = choice_of_row.data(),
                              .row_of_choice = row_of_choice.data()});
    const auto scaled = [&](Matrix rows) {  // the experts, on rows sorted by expert
      const std::vector<std::int32_t> begins = offsets.read();
      for (std::int64_t row = 0; row < rows.rows; ++row)
        for (std::int64_t i = 0; i < kSize; ++i)
          rows(row, i) *= row < begins[1] ? 1 : row < begins[2] ? 2 : 3;
      return rows;
    };
    const DeviceMatrix device_x(backend, x);
    const DeviceMatrix rows(backend, 8, kSize);
    run(backend, DispatchForward{tokens, kTopK, kSize, DType::F32, choice_of_row.data(),
                                 device_x.data(), kSize, rows.data(), kSize});
    const DeviceMatrix outputs(backend, scaled(rows.read()));
    const DeviceMatrix probabilities(backend, p);
    const DeviceMatrix device_dy(backend, dy);
    const DeviceMatrix doutputs(backend, 8, kSize);
    const DeviceMatrix dprobabilities(backend, tokens, kTopK);
    run(backend, CombineBackward{tokens, kTopK, kSize, DType::F32, row_of_choice.data(),
                                 probabilities.floats(), outputs.data(), device_dy.data(), kSize,
                                 doutputs.data(), kSize, dprobabilities.floats()});
    const DeviceMatrix drows(backend, scaled(doutputs.read()));
    const DeviceMatrix device_dx(backend, tokens, kSize);
    run(backend, DispatchBackward{tokens, kTopK, kSize, DType::F32, row_of_choice.data(),
                                  drows.data(), kSize, device_dx.data(), kSize});
    check_close(device_dx.read(), dx, tolerance(DType::F32, 8, 6.0) + 1e-8);
    check_close(dprobabilities.read(), dp, tolerance(DType::F32, 8, 15.0) + 1e-8);
  });
}

}  // namespace meshplan::kernels::test
