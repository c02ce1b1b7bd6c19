#include "train/warnings.hpp"

#include <catch2/catch.hpp>

namespace meshplan::test {
namespace {

using Catch::Contains;
using runtime::LossSpikes;
using runtime::SlowRanks;

/// A loss around 2 that alternates by 0.1: from its 10th to its 90th percentile it is 0.2.
double usual(int step) {
  return step % 2 == 0 ? 1.9 : 2.1;
}

}  // namespace

TEST_CASE("a loss is a spike beyond a number of standard deviations", "[runtime][watch]") {
  // 0.2 / 2.5631 is the deviation: 6 of them above the median of 2 lie at 2.468
  for (const auto& [loss, spike] : {std::pair(2.46, false), {2.475, true}}) {
    LossSpikes spikes(6);
    for (int step = 0; step < 32; ++step) CHECK_FALSE(spikes.check(usual(step)));
    const auto warning = spikes.check(loss);
    CHECK(warning.has_value() == spike);
    if (warning) CHECK_THAT(*warning, Contains("2.4750") && Contains("median of 2.0000"));
  }
}

TEST_CASE("a spike is told once, and again after the loss has come back", "[runtime][watch]") {
  LossSpikes spikes(6);
  for (int step = 0; step < 32; ++step) spikes.check(usual(step));
  CHECK(spikes.check(9.0));
  CHECK_FALSE(spikes.check(9.0));
  CHECK_FALSE(spikes.check(2.0));
  CHECK(spikes.check(9.0));
}

TEST_CASE("without a history, without a threshold or with a falling loss there is no spike",
          "[runtime][watch]") {
  LossSpikes fresh(6);
  for (int step = 0; step < 8; ++step) CHECK_FALSE(fresh.check(step == 7 ? 100.0 : 2.0));
  LossSpikes never(0);
  for (int step = 0; step < 40; ++step) CHECK_FALSE(never.check(step < 32 ? 2.0 : 1e9));
  LossSpikes falling(6);
  for (int step = 0; step < 200; ++step) CHECK_FALSE(falling.check(5.5 - 0.02 * step));
  // A loss that does not move at all: 6 % above it is the least that counts.
  const std::vector<double> flat(20, 1.0);
  CHECK_FALSE(LossSpikes(6, flat).check(1.059));
  CHECK(LossSpikes(6, flat).check(1.061));
}

TEST_CASE("a rank is slow if it stays behind the others of its stage", "[runtime][watch]") {
  // Stage 1 does twice the work of stage 0, which makes none of its ranks slow.
  SlowRanks ranks(1.5, {0, 0, 0, 1, 1, 1});
  const std::vector<double> even = {1, 1, 1, 2, 2, 2};
  const std::vector<double> behind = {1, 1.4, 1, 2, 2, 3.2};
  for (int step = 0; step < 4; ++step) CHECK(ranks.check(behind).empty());
  const std::vector<SlowRanks::Found> found = ranks.check(behind);
  REQUIRE(found.size() == 1);
  CHECK(found.front().rank.rank == 5);
  CHECK(found.front().rank.times == Approx(1.6));
  CHECK_THAT(found.front().warning, Contains("rank 5") && Contains("1.60 x") &&
                                        Contains("stage 1") &&
                                        Contains("3200.0 ms against 2000.0 ms"));
  const std::vector<SlowRanks::Found> still = ranks.check(behind);
  REQUIRE(still.size() == 1);
  CHECK(still.front().warning.empty());  // told
  CHECK(ranks.check(even).empty());
  for (int step = 0; step < 4; ++step) CHECK(ranks.check(behind).empty());
  CHECK(ranks.check(behind).size() == 1);  // again
}

TEST_CASE("of several slow ranks the newest comes first, then the worst", "[runtime][watch]") {
  SlowRanks ranks(1.5, {0, 0, 0, 0, 0, 0, 0});
  const auto order = [&](const std::vector<double>& computing) {
    std::vector<int> found;
    for (const SlowRanks::Found& one : ranks.check(computing)) found.push_back(one.rank.rank);
    return found;
  };
  for (int step = 0; step < 4; ++step) CHECK(order({1, 2, 1, 3, 1, 1, 1}).empty());
  CHECK(order({1, 2, 1, 3, 1, 1, 1}) == std::vector<int>{3, 1});
  for (int step = 0; step < 4; ++step)
    CHECK(order({1.8, 2, 1, 3, 1, 1, 1}) == std::vector<int>{3, 1});
  CHECK(order({1.8, 2, 1, 3, 1, 1, 1}) == std::vector<int>{0, 3, 1});
  CHECK(order({1.8, 2, 1, 1, 1, 1, 1}) == std::vector<int>{1, 0});
}

TEST_CASE("a rank without peers, and a factor of 0, give no warning", "[runtime][watch]") {
  SlowRanks alone(1.5, {0, 1});
  SlowRanks never(0, {0, 0});
  for (int step = 0; step < 10; ++step) {
    CHECK(alone.check(std::vector<double>{1, 100}).empty());
    CHECK(never.check(std::vector<double>{1, 100}).empty());
  }
}

}  // namespace meshplan::test
