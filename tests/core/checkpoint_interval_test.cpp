#include "core/checkpoint_interval.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace meshplan {
namespace {

/// Expected time of a unit of training, but for constant factors: Daly 2006, equation 20.
double expected_time(double interval_s, double checkpoint_s, double mtbf_s) {
  return std::expm1((interval_s + checkpoint_s) / mtbf_s) / interval_s;
}

}  // namespace

TEST_CASE("no other interval between checkpoints is expected to be better", "[core]") {
  for (const double checkpoint_s : {0.01, 1.0, 30.0, 600.0})
    for (const double mtbf_s : {1800.0, 36000.0, 1e6}) {
      CAPTURE(checkpoint_s, mtbf_s);
      const double best = best_checkpoint_interval_s(checkpoint_s, mtbf_s);
      const double least = expected_time(best, checkpoint_s, mtbf_s);
      for (double factor = 0.2; factor < 5; factor *= 1.05)
        CHECK(expected_time(factor * best, checkpoint_s, mtbf_s) > least * (1 - 2e-3));
    }
  // Young 1974, where failures are rare.
  CHECK(best_checkpoint_interval_s(1, 1e8) == Approx(std::sqrt(2e8)).epsilon(1e-3));
  CHECK(best_checkpoint_interval_s(100, 10) == 10);
}

TEST_CASE("a checkpoint is not begun before a step is done and the last one is complete",
          "[core]") {
  const double best = best_checkpoint_interval_s(0.5, 3600);  // some 60 s
  CHECK(checkpoint_interval_s({.stall_s = 0.5, .complete_s = 1, .step_s = 2}, 3600) == best);
  CHECK(checkpoint_interval_s({.stall_s = 0.5, .complete_s = 100, .step_s = 2}, 3600) == 100);
  CHECK(checkpoint_interval_s({.stall_s = 0.5, .complete_s = 1, .step_s = 200}, 3600) == 200);
  CHECK(checkpoint_interval_steps({.stall_s = 0.5, .complete_s = 100, .step_s = 3}, 3600) == 34);
  CHECK(checkpoint_interval_steps({.stall_s = 0.5, .complete_s = 1, .step_s = 200}, 3600) == 1);
  CHECK(checkpoint_interval_steps({.stall_s = 1, .step_s = 0}, 1e30) == 1'000'000'000);
}

}  // namespace meshplan
