#include "reports/trial_report.hpp"

#include <catch2/catch.hpp>

namespace meshplan::reports {
namespace {

TrialRow row(int dp, double predicted_s, double measured_s) {
  TrialRow r{.predicted_s = predicted_s,
             .predicted_memory_bytes = 1,
             .measured_s = measured_s,
             .measured_memory_bytes = 1};
  r.plan.parallel.dp = dp;
  return r;
}

}  // namespace

TEST_CASE("the error of a trial is the mean of absolute relative errors", "[reports]") {
  // 1.1 / 1 - 1 = 0.1; 0.4 / 0.5 - 1 = -0.2
  const Trial trial{.rows = {row(1, 1.1, 1.0), row(2, 0.4, 0.5)}};
  CHECK(mean_absolute_error(trial) == Approx(0.15));
  CHECK(mean_absolute_error(Trial{}) == 0);
}

TEST_CASE("the naive predictor divides one rank's time by the ranks", "[reports]") {
  // 1.0 / 2 against 0.8: -0.375; 1.0 / 4 against 0.5: -0.5. One rank itself is not counted.
  const Trial trial{.rows = {row(1, 3.0, 1.0), row(2, 0.8, 0.8), row(4, 0.5, 0.5)}};
  REQUIRE(naive_mean_absolute_error(trial).has_value());
  CHECK(*naive_mean_absolute_error(trial) == Approx((0.375 + 0.5) / 2));
}

TEST_CASE("of several one-rank plans the fastest is the naive predictor's base", "[reports]") {
  const Trial trial{.rows = {row(1, 3.0, 2.0), row(1, 3.0, 1.0), row(2, 0.8, 0.8)}};
  CHECK(*naive_mean_absolute_error(trial) == Approx(0.375));
}

TEST_CASE("without a plan of one rank, or with nothing else, there is no naive figure",
          "[reports]") {
  CHECK_FALSE(naive_mean_absolute_error({.rows = {row(2, 0.8, 0.8)}}).has_value());
  CHECK_FALSE(naive_mean_absolute_error({.rows = {row(1, 0.8, 0.8)}}).has_value());
}

TEST_CASE("the report says how much slower the predicted first choice is", "[reports]") {
  // Predicted fastest: dp 2, measured 0.6; measured fastest: dp 4, 0.5. 20% slower.
  const Trial trial{.rows = {row(1, 1.0, 1.0), row(2, 0.4, 0.6), row(4, 0.5, 0.5)}};
  CHECK_THAT(to_text(trial), Catch::Contains("20.0 % slower than the fastest"));
  CHECK_THAT(to_json(trial), Catch::Contains("naive_mean_absolute_error"));
}

// The prediction chooses model a's slower plan, 0.5 / 0.4 = 1.25, and b's faster one.
TEST_CASE("each model of a trial has its own choice and its own naive predictor", "[reports]") {
  Trial trial{.rows = {row(1, 1.0, 1.0), row(2, 0.3, 0.5), row(4, 0.35, 0.4), row(1, 8.0, 8.0),
                       row(2, 4.0, 4.0)}};
  trial.rows[3].plan.model.name = trial.rows[4].plan.model.name = "b";
  const std::string text = to_text(trial);
  CHECK_THAT(text, Catch::Matchers::Contains("25.0 % slower than the fastest"));
  CHECK_THAT(text, Catch::Matchers::Contains("b\nfastest           dp2 mbs1 at 4000.0 ms"));
  // |0.5 / 0.5 - 1|, |0.25 / 0.4 - 1| and |4 / 4 - 1|
  CHECK(*naive_mean_absolute_error(trial) == Approx(0.375 / 3));
  CHECK_THAT(to_csv(trial), Catch::Matchers::Contains(",b,dp2 mbs1,2,4,4,"));
  CHECK_THAT(to_markdown(trial), Catch::Matchers::Contains("| plan | ranks |"));
}

}  // namespace meshplan::reports
