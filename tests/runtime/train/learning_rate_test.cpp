#include "train/learning_rate.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace meshplan::runtime {
namespace {

using program::LearningRateSchedule;
using program::OptimizerConfig;

OptimizerConfig config(LearningRateSchedule schedule) {
  OptimizerConfig c;
  c.learning_rate = 8e-4;
  c.schedule = schedule;
  c.warmup_steps = 4;
  c.minimum_ratio = 0.25;
  return c;
}

}  // namespace

TEST_CASE("warm-up rises linearly from peak / warmup_steps to the peak", "[runtime]") {
  for (const auto schedule : {LearningRateSchedule::Constant, LearningRateSchedule::Cosine}) {
    const OptimizerConfig c = config(schedule);
    CHECK(learning_rate(c, 0, 100) == Approx(2e-4));
    CHECK(learning_rate(c, 1, 100) == Approx(4e-4));
    CHECK(learning_rate(c, 2, 100) == Approx(6e-4));
    CHECK(learning_rate(c, 3, 100) == Approx(8e-4));
    CHECK(learning_rate(c, 4, 100) == Approx(8e-4));  // the first step of the decay
  }
}

TEST_CASE("without warm-up the first step has the peak", "[runtime]") {
  OptimizerConfig c = config(LearningRateSchedule::Cosine);
  c.warmup_steps = 0;
  CHECK(learning_rate(c, 0, 100) == Approx(8e-4));
}

TEST_CASE("a constant rate stays at the peak", "[runtime]") {
  const OptimizerConfig c = config(LearningRateSchedule::Constant);
  for (const int step : {4, 50, 99, 5000}) CHECK(learning_rate(c, step, 100) == Approx(8e-4));
}

TEST_CASE("cosine decay passes the known points of the curve", "[runtime]") {
  OptimizerConfig c = config(LearningRateSchedule::Cosine);
  c.decay_steps = 64;  // 60 steps of decay from 8e-4 to 2e-4: middle 5e-4, half range 3e-4
  CHECK(learning_rate(c, 4 + 15, 1000) == Approx(5e-4 + 3e-4 * std::sqrt(0.5)));  // cos 45 deg
  CHECK(learning_rate(c, 4 + 20, 1000) == Approx(5e-4 + 3e-4 * 0.5));             // cos 60 deg
  CHECK(learning_rate(c, 4 + 30, 1000) == Approx(5e-4));
  CHECK(learning_rate(c, 4 + 40, 1000) == Approx(5e-4 - 3e-4 * 0.5));
  CHECK(learning_rate(c, 4 + 60, 1000) == Approx(2e-4));
}

TEST_CASE("after the decay the minimum stays", "[runtime]") {
  OptimizerConfig c = config(LearningRateSchedule::Cosine);
  c.decay_steps = 64;
  for (const int step : {64, 65, 999}) CHECK(learning_rate(c, step, 1000) == Approx(2e-4));
}

TEST_CASE("the decay lasts as long as the run unless it is given", "[runtime]") {
  const OptimizerConfig c = config(LearningRateSchedule::Cosine);
  CHECK(learning_rate(c, 4 + 48, 100) == Approx(5e-4));
  CHECK(learning_rate(c, 4 + 98, 200) == Approx(5e-4));
}

TEST_CASE("a warm-up longer than the decay ends at the minimum", "[runtime]") {
  OptimizerConfig c = config(LearningRateSchedule::Cosine);
  c.warmup_steps = 10;
  c.decay_steps = 5;
  CHECK(learning_rate(c, 9, 100) == Approx(8e-4));
  CHECK(learning_rate(c, 11, 100) == Approx(2e-4));
}

}  // namespace meshplan::runtime
