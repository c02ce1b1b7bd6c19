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

}  // namespace meshplan
