// What router.hpp has besides the plain router: groups, loads, losses, capacity, the correction
// bias.
#include <algorithm>
#include <numeric>

#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr std::int64_t kTokens = 10;  // of three sequences of four: the first two are elsewhere
constexpr std::int64_t kFirst = 2;
constexpr std::int64_t kSeqLen = 4;
constexpr std::int64_t kSequences = 3;
constexpr int kExperts = 6;
constexpr int kTopK = 2;

std::vector<std::int32_t> some_choices() {
  std::vector<std::int32_t> choices;
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (int k = 0; k < kTopK; ++k)
      choices.push_back(static_cast<std::int32_t>((t * t + 3 * k) % kExperts));
  return choices;
}

/// Counts of two ranks, small whole numbers.
Matrix some_loads() {
  Matrix load(2 * kSequences, kExperts);
  for (std::int64_t b = 0; b < load.rows; ++b)
    for (int x = 0; x < kExperts; ++x) load(b, x) = static_cast<double>((3 * b + 5 * x) % 7);
  return load;
}

double load_of(const Matrix& load, std::int64_t t, int x) {
  const std::int64_t sequence = (kFirst + t) / kSeqLen;
  return load(sequence, x) + load(kSequences + sequence, x);
}

constexpr double kBalance = 0.3;
constexpr double kZ = 0.7;

/// Both losses of a token in one column, by their definition.
Matrix losses(const Matrix& logits, RouterScore score, const Matrix& load, double z_weight) {
  Matrix result(logits.rows, 1);
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    double exponentials = 0.0;
    double total = 0.0;
    double weighted = 0.0;
    for (int x = 0; x < kExperts; ++x) {
      exponentials += std::exp(logits(t, x));
      const double s = score == RouterScore::Softmax ? std::exp(logits(t, x))
                                                     : 1.0 / (1.0 + std::exp(-logits(t, x)));
      total += s;
      weighted += s * load_of(load, t, x);
    }
    const double lse = std::log(exponentials);
    result(t, 0) = kBalance * weighted / total + z_weight * lse * lse;
  }
  return result;
}

/// The router's outputs on a device.
struct RoutedOnDevice {
  DeviceMatrix logits, scores, probabilities, lse;
  DeviceVector<std::int32_t> choices;
  RouterForward op;
  RoutedOnDevice(Backend& backend, const Matrix& values, RouterScore score)
      : logits(backend, values),
        scores(backend, values.rows, kExperts),
        probabilities(backend, values.rows, kTopK),
        lse(backend, values.rows, 1),
        choices(backend, static_cast<std::size_t>(values.rows * kTopK), -1),
        op{.tokens = values.rows,
           .experts = kExperts,
           .top_k = kTopK,
           .score = score,
           .logits = logits.data(),
           .logits_stride = kExperts,
           .scores = scores.floats(),
           .choices = choices.data(),
           .probabilities = probabilities.floats(),
           .lse = lse.floats()} {}
};

}  // namespace

TEST_CASE("only experts of the best groups are chosen", "[kernels][router]") {
  for_each_backend([](Backend& backend) {
    for (const int group_experts : {1, 2}) {
      constexpr int kAll = 12;
      constexpr int kGroups = 4;
      constexpr int kBest = 2;
      constexpr int kSize = kAll / kGroups;
      const Matrix logits = random_in(DType::F32, kTokens, kAll, 1, 2.0);
      const Matrix bias = random_in(DType::F32, 1, kAll, 2, 0.2);
      const DeviceMatrix device_logits(backend, logits);
      const DeviceMatrix device_bias(backend, bias);
      const DeviceMatrix scores(backend, kTokens, kAll);
      const DeviceMatrix probabilities(backend, kTokens, 3);
      const DeviceVector<std::int32_t> choices(backend, kTokens * 3, -1);
      run(backend, RouterForward{.tokens = kTokens,
                                 .experts = kAll,
                                 .top_k = 3,
                                 .score = RouterScore::Sigmoid,
                                 .logits = device_logits.data(),
                                 .logits_stride = kAll,
                                 .num_groups = kGroups,
                                 .top_groups = kBest,
                                 .group_experts = group_experts,
                                 .correction_bias = device_bias.data(),
                                 .scores = scores.floats(),
                                 .choices = choices.data(),
                                 .probabilities = probabilities.floats()});
      std::vector<std::int32_t> expected;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        std::vector<double> key;
        for (int x = 0; x < kAll; ++x)
          key.push_back(1.0 / (1.0 + std::exp(-logits(t, x))) + bias(0, x));
        std::vector<std::pair<double, int>> groups;
        for (int g = 0; g < kGroups; ++g) {
          std::vector<double> own(key.begin() + g * kSize, key.begin() + (g + 1) * kSize);
          std::sort(own.rbegin(), own.rend());
          groups.emplace_back(-std::accumulate(own.begin(), own.begin() + group_experts, 0.0), g);
        }
        std::sort(groups.begin(), groups.end());
        std::vector<std::pair<double, int>> eligible;
        for (int i = 0; i < kBest; ++i)
          for (int j = 0; j < kSize; ++j) {
            const int x = groups[static_cast<std::size_t>(i)].second * kSize + j;
            eligible.emplace_back(-key[static_cast<std::size_t>(x)], x);
          }
        std::sort(eligible.begin(), eligible.end());
        for (std::size_t k = 0; k < 3; ++k) expected.push_back(eligible[k].second);
      }
      CHECK(choices.read() == expected);
    }
  });
}

TEST_CASE("loads count the choices of a step and of each sequence", "[kernels][router]") {
  for_each_backend([](Backend& backend) {
    std::vector<std::int32_t> chosen = some_choices();
    chosen[3] = -1;  // dropped
    const DeviceVector<std::int32_t> choices(backend, chosen);
    const DeviceMatrix load(backend, kSequences, kExperts);
    const DeviceVector<float> total(backend, kExperts, 100.0F);
    ExpertLoad op{.tokens = kTokens,
                  .experts = kExperts,
                  .top_k = kTopK,
                  .choices = choices.data(),
                  .first_token = kFirst,
                  .seq_len = kSeqLen,
                  .sequences = kSequences,
                  .load = load.floats()};
    run(backend, op);
    op.load = nullptr;
    op.total = total.data();
    run(backend, op);
    Matrix by_sequence(kSequences, kExperts);
    std::vector<float> all(kExperts, 100.0F);
    for (std::size_t c = 0; c < chosen.size(); ++c) {
      if (chosen[c] < 0) continue;
      ++by_sequence((kFirst + static_cast<std::int64_t>(c) / kTopK) / kSeqLen, chosen[c]);
      ++all[static_cast<std::size_t>(chosen[c])];
    }
    check_close(load.read(), by_sequence, 0.0);
    CHECK(total.read() == all);
  });
}

TEST_CASE("router losses and their gradients agree with the definition", "[kernels][router]") {
  for_each_backend([](Backend& backend) {
    for (const RouterScore score : {RouterScore::Softmax, RouterScore::Sigmoid}) {
      const double z_weight = score == RouterScore::Softmax ? kZ : 0.0;
      const Matrix logits = random_in(DType::F32, kTokens, kExperts, 5, 2.0);
      const Matrix load = some_loads();
      RoutedOnDevice routed(backend, logits, score);
      run(backend, routed.op);
      const DeviceMatrix device_load(backend, load);
      const SequenceCounts counts{.first_token = kFirst,
                                  .seq_len = kSeqLen,
                                  .sequences = kSequences,
                                  .parts = 2,
                                  .load = device_load.floats()};
      const DeviceVector<double> sums(backend, {10.0, 20.0});
      run(backend, RouterLosses{.tokens = kTokens,
                                .experts = kExperts,
                                .balance_weight = static_cast<float>(kBalance),
                                .z_weight = static_cast<float>(z_weight),
                                .counts = counts,
                                .scores = routed.scores.floats(),
                                .lse = routed.lse.floats(),
                                .balance = sums.data(),
                                .z = sums.data() + 1});
      const Matrix both = losses(logits, score, load, z_weight);
      const Matrix balance = losses(logits, score, load, 0.0);
      const double all = std::accumulate(both.values.begin(), both.values.end(), 0.0);
      const double part = std::accumulate(balance.values.begin(), balance.values.end(), 0.0);
      CHECK(sums.read()[0] == Approx(10.0 + part).epsilon(1e-6));
      CHECK(sums.read()[1] == Approx(20.0 + all - part).epsilon(1e-6));

      constexpr float kScale = 0.25F;
      const DeviceVector<float> scale(backend, std::size_t{1}, kScale);
      const DeviceMatrix dprobabilities(backend, Matrix(kTokens, kTopK));
      const DeviceMatrix dlogits(backend, kTokens, kExperts);
      RouterBackward backward{.tokens = kTokens,
                              .experts = kExperts,
                              .top_k = kTopK,
                              .score = score,
                              .scores = routed.scores.floats(),
                              .choices = routed.choices.data(),
                              .dprobabilities = dprobabilities.floats(),
                              .balance_weight = static_cast<float>(kBalance),
                              .z_weight = static_cast<float>(z_weight),
                              .counts = counts,
                              .lse = routed.lse.floats(),
                              .loss_scale = scale.data(),
                              .dlogits = dlogits.data(),
                              .dlogits_stride = kExperts};
      run(backend, backward);
      Matrix weights(kTokens, 1);
      for (double& weight : weights.values) weight = double{kScale};
      const Matrix expected = reference::finite_difference(
          [&](const Matrix& moved) { return losses(moved, score, load, z_weight); }, logits,
          weights);
      // loads are at most 12, |lse| at most 4
      check_close(dlogits.read(), expected, tolerance(DType::F32, 2 * kExperts, 4.0) + 1e-8);

      constexpr std::int64_t kUncounted = 2;
      backward.uncounted_tokens = kUncounted;
      const Matrix all_counted = dlogits.read();
      run(backend, backward);
      const Matrix some_counted = dlogits.read();
      for (std::int64_t t = 0; t < kTokens; ++t)
        for (int x = 0; x < kExperts; ++x)
          CHECK(some_counted(t, x) == (t < kTokens - kUncounted ? all_counted(t, x) : 0.0));
    }
  });
}

TEST_CASE("an expert takes the first tokens of a sequence, up to its capacity",
          "[kernels][router]") {
  for_each_backend([](Backend& backend) {
    const std::vector<std::int32_t> chosen = some_choices();
    const Matrix load = some_loads();  // of the rank before this one, then this one's
    const DeviceVector<std::int32_t> choices(backend, chosen);
    const DeviceVector<std::int32_t> kept(backend, chosen.size(), -7);
    const DeviceMatrix device_load(backend, load);
    constexpr std::int64_t kCapacity = 4;
    LimitChoices limit{.tokens = kTokens,
                       .experts = kExperts,
                       .top_k = kTopK,
                       .capacity = kCapacity,
                       .counts = {.first_token = kFirst,
                                  .seq_len = kSeqLen,
                                  .sequences = kSequences,
                                  .parts = 2,
                                  .load = device_load.floats()},
                       .part = 1,
                       .choices = choices.data(),
                       .kept = kept.data()};
    run(backend, limit);
    std::vector<std::int32_t> expected;
    for (std::size_t c = 0; c < chosen.size(); ++c) {
      const std::int64_t sequence = (kFirst + static_cast<std::int64_t>(c) / kTopK) / kSeqLen;
      auto before = static_cast<std::int64_t>(load(sequence, chosen[c]));
      for (std::size_t other = 0; other < c; ++other)
        before += chosen[other] == chosen[c] &&
                  (kFirst + static_cast<std::int64_t>(other) / kTopK) / kSeqLen == sequence;
      expected.push_back(before < kCapacity ? chosen[c] : -1);
    }
    CHECK(std::count(expected.begin(), expected.end(), -1) > 0);
    CHECK(kept.read() == expected);
    limit.uncounted_tokens = 2;
    std::fill(expected.end() - 2 * kTopK, expected.end(), -1);
    run(backend, limit);
    CHECK(kept.read() == expected);
  });
}

TEST_CASE("over cp an expert takes the first tokens of whole sequences, chunk by chunk",
          "[kernels][router]") {
  for_each_backend([](Backend& backend) {
    constexpr int kCp = 2, kTp = 2, kChunk = 2, kLength = 2 * kCp * kChunk;
    constexpr std::int64_t kBoth = 2, kCapacity = 2;
    constexpr std::int64_t kHere = kBoth * kLength / kCp / kTp;  // tokens of a rank
    const auto choice_of = [](std::int64_t b, std::int64_t position, int k) {
      return static_cast<std::int32_t>((b + position * position + 2 * k) % kExperts);
    };
    // Token t of cp rank r's two sequences: half a sequence each, in chunks r and 2 cp - 1 - r.
    const auto place = [](int r, std::int64_t t) {
      const std::int64_t i = t % (2 * kChunk);
      const std::int64_t chunk = i < kChunk ? r : 2 * kCp - 1 - r;
      return std::pair(t / (2 * kChunk), chunk * kChunk + i % kChunk);
    };
    Matrix load(kCp * kTp * kBoth * 2, kExperts);
    for (int part = 0; part < kCp * kTp; ++part)
      for (std::int64_t i = 0; i < kHere; ++i) {
        const std::int64_t t = part % kTp * kHere + i;
        const auto [b, position] = place(part / kTp, t);
        for (int k = 0; k < kTopK; ++k)
          ++load(part * kBoth * 2 + t / kChunk, choice_of(b, position, k));
      }
    const DeviceMatrix device_load(backend, load);
    std::int64_t dropped = 0;
    for (int part = 0; part < kCp * kTp; ++part) {
      std::vector<std::int32_t> chosen, expected;
      for (std::int64_t i = 0; i < kHere; ++i) {
        const auto [b, position] = place(part / kTp, part % kTp * kHere + i);
        for (int k = 0; k < kTopK; ++k) {
          const std::int32_t own = choice_of(b, position, k);
          std::int64_t before = 0;
          for (std::int64_t other = 0; other <= position; ++other)
            for (int j = 0; j < (other < position ? kTopK : k); ++j)
              before += choice_of(b, other, j) == own;
          chosen.push_back(own);
          expected.push_back(before < kCapacity ? own : -1);
        }
      }
      dropped += std::count(expected.begin(), expected.end(), -1);
      const DeviceVector<std::int32_t> choices(backend, chosen);
      const DeviceVector<std::int32_t> kept(backend, chosen.size(), -7);
      run(backend, LimitChoices{.tokens = kHere,
                                .experts = kExperts,
                                .top_k = kTopK,
                                .capacity = kCapacity,
                                .counts = {.first_token = part % kTp * kHere,
                                           .seq_len = kChunk,
                                           .sequences = kBoth * 2,
                                           .parts = kCp * kTp,
                                           .load = device_load.floats(),
                                           .cp = kCp},
                                .part = part,
                                .choices = choices.data(),
                                .kept = kept.data()});
      CHECK(kept.read() == expected);
    }
    CHECK(dropped > 0);
  });
}

TEST_CASE("dropped choices have no row, no share of the output and no gradient",
          "[kernels][dispatch]") {
  for_each_backend([](Backend& backend) {
    const DeviceVector<std::int32_t> choices(backend, {2, -1, -1, 0, 2, 0});  // 3 tokens, 2 each
    const DeviceVector<std::int32_t> offsets(backend, 4, -5);
    const DeviceVector<std::int32_t> choice_of_row(backend, 6, -5);
    const DeviceVector<std::int32_t> row_of_choice(backend, 6, -5);
    run(backend, DispatchPlan{.tokens = 3,
                              .experts = 3,
                              .top_k = 2,
                              .choices = choices.data(),
                              .offsets = offsets.data(),
                              .choice_of_row = choice_of_row.data(),
                              .row_of_choice = row_of_choice.data()});
    CHECK(offsets.read() == std::vector<std::int32_t>{0, 2, 2, 4});
    CHECK(choice_of_row.read() == std::vector<std::int32_t>{3, 5, 0, 4, -1, -1});
    CHECK(row_of_choice.read() == std::vector<std::int32_t>{2, -1, -1, 0, 3, 1});
    const Matrix x = random_in(DType::F32, 3, 4, 1);
    const Matrix p = random_in(DType::F32, 3, 2, 2);
    const Matrix dy = random_in(DType::F32, 3, 4, 3);
    const DeviceMatrix device_x(backend, x);
    const DeviceMatrix device_p(backend, p);
    const DeviceMatrix device_dy(backend, dy);
    const DeviceMatrix rows(backend, 6, 4);
    const DeviceMatrix drows(backend, 6, 4);
    const DeviceMatrix y(backend, 3, 4);
    const DeviceMatrix dx(backend, 3, 4);
    const DeviceMatrix dp(backend, 3, 2);
    run(backend, DispatchForward{3, 2, 4, DType::F32, choice_of_row.data(), device_x.data(), 4,
                                 rows.data(), 4});
    run(backend, CombineForward{3, 2, 4, DType::F32, row_of_choice.data(), device_p.floats(),
                                rows.data(), 4, y.data(), 4});
    run(backend, CombineBackward{3, 2, 4, DType::F32, row_of_choice.data(), device_p.floats(),
                                 rows.data(), device_dy.data(), 4, drows.data(), 4, dp.floats()});
    run(backend,
        DispatchBackward{3, 2, 4, DType::F32, row_of_choice.data(), drows.data(), 4, dx.data(), 4});
    Matrix expected_y(3, 4);
    Matrix expected_dx(3, 4);
    Matrix expected_dp(3, 2);
    const std::vector<std::int32_t> chosen = choices.read();
    for (std::int64_t t = 0; t < 3; ++t)
      for (int k = 0; k < 2; ++k) {
        if (chosen[static_cast<std::size_t>(2 * t + k)] < 0) continue;
        for (std::int64_t i = 0; i < 4; ++i) {
          expected_y(t, i) += p(t, k) * x(t, i);
          expected_dx(t, i) += p(t, k) * dy(t, i);
          expected_dp(t, k) += dy(t, i) * x(t, i);
        }
      }
    check_close(y.read(), expected_y, tolerance(DType::F32, 2, 2.0));
    check_close(dx.read(), expected_dx, tolerance(DType::F32, 2, 2.0));
    check_close(dp.read(), expected_dp, tolerance(DType::F32, 4, 4.0));
    for (std::int64_t i = 0; i < 4; ++i) CHECK(rows.read()(5, i) == 4096.0);  // unwritten
  });
}

TEST_CASE("the correction bias moves towards experts with less than their share",
          "[kernels][router]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::BF16, DType::F16}) {
      const DeviceVector<float> load(backend, {9.0F, 1.0F, 5.0F, 5.0F});
      const DeviceVector<float> bias(backend, {0.5F, -0.5F, 0.25F, 0.0F});
      const DeviceMatrix copy(backend, 1, 4, dtype);
      run(backend, BalanceExperts{.experts = 4,
                                  .rate = 0.125F,
                                  .load = load.data(),
                                  .bias = bias.data(),
                                  .copy_dtype = dtype,
                                  .copy = copy.data()});
      CHECK(bias.read() == std::vector<float>{0.375F, -0.375F, 0.25F, 0.0F});
      Matrix expected(1, 4);
      expected.values = {0.375, -0.375, 0.25, 0.0};
      check_close(copy.read(), expected, 0.0);
    }
  });
}

}  // namespace meshplan::kernels::test
