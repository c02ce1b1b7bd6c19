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

TEST_CASE("Rare failures cost what first order says", "[planner][training_run]") {
  // Of an interval t with a checkpoint d, d / t is lost, and (t / 2 + R) / M to failures (Young
  // 1974).
  const double mtbf_s = 1e7, interval = 3600, checkpoint = 30, restart = 300;
  const TrainingRunAnswer answer = training_run({.tokens = 1e9,
                                                 .device_mtbf_hours = mtbf_s * 64 / 3600,
                                                 .checkpoint_s = checkpoint,
                                                 .restart_s = restart,
                                                 .checkpoint_interval_s = interval},
                                                1, 1e3, 64);
  const double lost = checkpoint / interval + (interval / 2 + restart) / mtbf_s;
  CHECK(answer.elapsed_s / answer.training_s == Approx(1 + lost).epsilon(1e-4));
  CHECK(answer.failures == Approx(answer.elapsed_s / mtbf_s));
}

TEST_CASE("No other interval between checkpoints beats the best one", "[planner][training_run]") {
  for (const double hours : {1e3, 5e4, 1e6})
    for (const double checkpoint : {5.0, 120.0}) {
      TrainingRunQuestion question{
          .tokens = 1e12, .device_mtbf_hours = hours, .checkpoint_s = checkpoint, .restart_s = 60};
      const TrainingRunAnswer best = training_run(question, 1, 4e6, 1024);
      for (const double times : {0.5, 0.9, 1.1, 2.0}) {
        question.checkpoint_interval_s = times * best.checkpoint_interval_s;
        CHECK(training_run(question, 1, 4e6, 1024).elapsed_s >= best.elapsed_s * (1 - 1e-3));
      }
    }
}

TEST_CASE("Numbers that no run has are refused", "[planner][training_run]") {
  CHECK_THROWS_AS(training_run({.tokens = 0}, 1, 1, 1), ConfigError);
  CHECK_THROWS_AS(training_run({.tokens = 1, .price_per_device_hour = -1}, 1, 1, 1), ConfigError);
  CHECK_THROWS_AS(training_run({.tokens = std::nan("")}, 1, 1, 1), ConfigError);
  // A failure every second, and ten minutes to restart.
  CHECK_THROWS_AS(training_run({.tokens = 1e12, .device_mtbf_hours = 1}, 1, 1e6, 3600),
                  ConfigError);
}

}  // namespace meshplan::planner
