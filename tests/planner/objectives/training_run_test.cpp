#include "planner/objectives/training_run.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.hpp"

namespace meshplan::planner {

TEST_CASE("A run in which nothing fails takes its steps", "[planner][training_run]") {
  // 1e12 tokens in steps of 4e6 are 250,000 steps of 2 s on 128 devices.
  const TrainingRunAnswer answer = training_run(
      {.tokens = 1e12, .price_per_device_hour = 2.5, .watts_per_device = 1000}, 2, 4e6, 128);
  CHECK(answer.steps == 250'000);
  CHECK(answer.elapsed_s == 500'000);
  CHECK(answer.goodput == 1);
  CHECK(answer.failures == 0);
  CHECK(answer.device_hours == Approx(500'000.0 / 3600 * 128));
  CHECK(*answer.money == Approx(2.5 * 500'000.0 / 3600 * 128));
  CHECK(*answer.energy_kwh == Approx(500'000.0 / 3600 * 128));
  // The last step is whole.
  CHECK(training_run({.tokens = 4e6 + 1}, 2, 4e6, 1).steps == 2);
}

TEST_CASE("A run with failures takes as long as its goodput says", "[planner][training_run]") {
  const Goodput goodput{.goodput = 0.8, .interval_s = 900, .mtbf_s = 5000, .paid = 1.25};
  const TrainingRunAnswer answer = training_run({.tokens = 1e9}, 1, 1e5, 64, &goodput);
  CHECK(answer.training_s == 10'000);
  CHECK(answer.elapsed_s == Approx(12'500));
  CHECK(answer.goodput == Approx(0.8));
  CHECK(answer.failures == Approx(2.5));
  CHECK(answer.checkpoint_interval_s == 900);
  CHECK(answer.device_hours == Approx(12'500.0 / 3600 * 64 * 1.25));  // spare nodes are paid, too
}

TEST_CASE("Numbers that no run has are refused", "[planner][training_run]") {
  CHECK_THROWS_AS(training_run({.tokens = 0}, 1, 1, 1), ConfigError);
  CHECK_THROWS_AS(training_run({.tokens = 1, .price_per_device_hour = -1}, 1, 1, 1), ConfigError);
  CHECK_THROWS_AS(training_run({.tokens = std::nan("")}, 1, 1, 1), ConfigError);
  const Goodput hopeless{.goodput = 1e-9, .mtbf_s = 1, .failure_s = 600};
  CHECK_THROWS_AS(training_run({.tokens = 1e12}, 1, 1e6, 3600, &hopeless), ConfigError);
}

}  // namespace meshplan::planner
