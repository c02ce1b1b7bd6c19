#include "planner/failures/goodput.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/checkpoint_interval.hpp"

namespace meshplan::planner {

TEST_CASE("Rare failures cost what first order says", "[planner][failures]") {
  // Of an interval t with a stall d, d / t is lost, and (t / 2 + w + R) / M to failures (Young
  // 1974).
  const double mtbf = 1e7, interval = 3600, stall = 30, lag = 120, restart = 300;
  const double goodput = checkpoint_goodput(
      {.mtbf_s = mtbf, .stall_s = stall, .lag_s = lag, .restart_s = restart}, interval);
  const double lost = stall / interval + (interval / 2 + lag + restart) / mtbf;
  CHECK(1 / goodput == Approx(1 + lost).epsilon(1e-4));
}

TEST_CASE("Frequent failures cost what renewal says", "[planner][failures]") {
  // A segment of training and stall is tried until no failure comes within it; so is each restart.
  const double mtbf = 1000, interval = 700, stall = 50, restart = 400;
  const auto tries = [&](double length) {  // expected failures, and time until one of them
    const double fine = std::exp(-length / mtbf);
    const double until = mtbf - length * fine / (1 - fine);
    return std::pair((1 - fine) / fine, until);
  };
  const auto [restarts_fail, restart_until] = tries(restart);
  const double one_restart = restarts_fail * restart_until + restart;
  const auto [segments_fail, segment_until] = tries(interval + stall);
  const double segment = segments_fail * (segment_until + one_restart) + interval + stall;
  CHECK(checkpoint_goodput({.mtbf_s = mtbf, .stall_s = stall, .restart_s = restart}, interval) ==
        Approx(interval / segment).epsilon(1e-12));
}

TEST_CASE("No other interval between checkpoints beats the best one", "[planner][failures]") {
  for (const double mtbf : {100.0, 4e3, 1e6})
    for (const double stall : {0.02, 5.0, 60.0}) {
      const FailureTimes times{.mtbf_s = mtbf, .stall_s = stall, .restart_s = 60};
      const double best = best_checkpoint_interval_s(stall, mtbf);
      REQUIRE(best > 0);
      for (const double factor : {0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 4.0})
        CHECK(checkpoint_goodput(times, factor * best) <=
              checkpoint_goodput(times, best) * (1 + 1e-3));
    }
}

TEST_CASE("A run that always fails before it restarts has no goodput", "[planner][failures]") {
  CHECK(checkpoint_goodput({.mtbf_s = 1, .restart_s = 1e6}, 1) == 0);
  CHECK(best_checkpoint_interval_s(500, 100) == 100);  // Daly's bound for stalls that exceed 2 M
}

}  // namespace meshplan::planner
