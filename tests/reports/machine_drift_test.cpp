#include "reports/machine_drift.hpp"

#include <catch2/catch.hpp>

#include "reports/trial_report.hpp"

namespace meshplan::reports {
namespace {

sim::Cluster calibrated() {
  sim::Cluster cluster;
  cluster.cores_per_host = 5;
  cluster.reference = {.seconds = 1e-3, .seconds_busy = 1.4e-3};
  return cluster;
}

TrialRow row(double predicted_s, double measured_s, std::optional<double> slowdown) {
  return {.predicted_s = predicted_s,
          .predicted_memory_bytes = 1,
          .measured_s = measured_s,
          .measured_memory_bytes = 1,
          .slowdown = slowdown};
}

}  // namespace

// One core alone took 1 ms, five at once 1.4 ms, so three at once 1.2 ms.
TEST_CASE("Drift is against as many cores at calibration", "[reports][drift]") {
  CHECK(*slowdown({.reference_s = 1.1e-3, .reference_ranks = 1}, calibrated()) == Approx(1.1));
  CHECK(*slowdown({.reference_s = 1.4e-3, .reference_ranks = 5}, calibrated()) == Approx(1));
  CHECK(*slowdown({.reference_s = 1.2e-3, .reference_ranks = 3}, calibrated()) == Approx(1));
  CHECK_FALSE(slowdown({.reference_s = 0}, calibrated()));
  CHECK_FALSE(slowdown({.reference_s = 1}, sim::Cluster{}));  // an older calibration
  CHECK_FALSE(slowdown({.reference_s = 1}, ""));
}

// Predicted 0.8 s, measured 1 s: 20 % too little. On a machine that is 1.25 times slower than it
// was, it would have been measured as 0.8 s then.
TEST_CASE("At calibration's speed a slower machine explains a slower step", "[reports][drift]") {
  CHECK(error_at_calibrated_speed(0.8, 1.0, 1.25) == Approx(0).margin(1e-12));
  CHECK(error_at_calibrated_speed(0.8, 1.0, 1) == Approx(-0.2));
  CHECK(error_at_calibrated_speed(0.8, 0.8, 0.5) == Approx(-0.5));
  CHECK(change(1.25) == "25.0 % slower");
  CHECK(change(0.9) == "10.0 % faster");
}

// Errors 0.8 / 1 - 1 = -20 % and 1 / 1.25 - 1 = -20 %; at the speed of calibration 0 and -20 %,
// for nothing is known of the second row's machine. So drift explains 10 of 20 points.
TEST_CASE("A trial says how much of its error the machine's drift explains", "[reports][drift]") {
  Trial trial{.rows = {row(0.8, 1.0, 1.25), row(1.0, 1.25, std::nullopt)}};
  CHECK(mean_absolute_error(trial) == Approx(0.2));
  CHECK(*mean_absolute_error_at_calibrated_speed(trial) == Approx(0.1));
  const std::string text = to_text(trial);
  CHECK_THAT(text, Catch::Contains("reference product 25.0 % slower than at calibration"));
  CHECK_THAT(text, Catch::Contains("10.0 % mean absolute step-time error: drift explains 10.0 of "
                                   "20.0 points"));
  CHECK_THAT(text, Catch::EndsWith("mean absolute step-time error: 20.0 %\n"));  // the headline
  CHECK_THAT(to_json(trial), Catch::Contains("mean_absolute_error_at_calibrated_speed"));
  trial.rows[0].slowdown = 0.5;  // a faster machine makes it worse
  CHECK_THAT(to_text(trial), Catch::Contains("drift explains nothing"));
  trial.rows[0].slowdown.reset();
  CHECK_FALSE(mean_absolute_error_at_calibrated_speed(trial));
  CHECK_THAT(to_text(trial), !Catch::Contains("calibration"));
}

TEST_CASE("Ranks on busy cores are worth a warning, with the figure", "[reports][drift]") {
  // 0.74 of two cores, both of them used by ranks.
  CHECK(busy_cores({.other_cores = 0.74, .cores = 2, .ranks_on_host = 2}) ==
        "other processes used 37 % of the cores that the ranks ran on");
  CHECK(busy_cores({.other_cores = 0.74, .cores = 2, .ranks_on_host = 4}) != "");
  CHECK(busy_cores({.other_cores = 0.74, .cores = 2, .ranks_on_host = 1}) == "");  // one is free
  CHECK(busy_cores({.other_cores = 0.04, .cores = 2, .ranks_on_host = 2}) == "");  // next to none
  CHECK(busy_cores(program::MachineSpeed{}) == "");                                // not known
  Trial trial{.rows = {row(1, 1, {}), row(1, 1, {})}};
  CHECK(busy_cores(trial).empty());
  trial.rows[1].machine = {.other_cores = 0.5, .cores = 1};
  CHECK_THAT(busy_cores(trial), Catch::Contains("50 % of the cores"));
}

}  // namespace meshplan::reports
