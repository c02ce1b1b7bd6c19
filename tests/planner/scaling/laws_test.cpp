// Laws of speed-up against closed forms.
#include "planner/scaling/laws.hpp"

#include <catch2/catch.hpp>

namespace meshplan::planner {
namespace {

std::vector<SpeedUp> on_law(ScalingMode mode, double serial) {
  std::vector<SpeedUp> seen;
  for (const double scale : {1, 2, 3, 8, 64})
    seen.push_back({scale, speed_up_of(mode, serial, scale)});
  return seen;
}

}  // namespace

TEST_CASE("Amdahl's law: half of the work in series is at most twice as fast",
          "[planner][scaling]") {
  CHECK(speed_up_of(ScalingMode::Strong, 0.5, 1) == 1);
  CHECK(speed_up_of(ScalingMode::Strong, 0.5, 2) == Approx(4.0 / 3));
  CHECK(speed_up_of(ScalingMode::Strong, 0.5, 1e12) == Approx(2));
  // Gustafson 1988: 1024 processors with 0.4 % in series.
  CHECK(speed_up_of(ScalingMode::Weak, 0.004, 1024) == Approx(1024 - 0.004 * 1023));
}

TEST_CASE("A fit finds the serial part that speed-ups were made with", "[planner][scaling]") {
  for (const ScalingMode mode : {ScalingMode::Strong, ScalingMode::Weak})
    for (const double serial : {0.0, 0.003, 0.2, 1.0}) {
      const auto fit = fit_serial(mode, on_law(mode, serial));
      REQUIRE(fit);
      CHECK(fit->serial == Approx(serial).margin(1e-12));
      CHECK(fit->worst_error == Approx(0).margin(1e-9));
      for (const SpeedUp& seen : on_law(mode, serial))
        if (seen.scale > 1) CHECK(*serial_part(mode, seen) == Approx(serial).margin(1e-12));
    }
}

TEST_CASE("The fit names the point that it misses most", "[planner][scaling]") {
  std::vector<SpeedUp> seen = on_law(ScalingMode::Strong, 0.01);
  seen[4].value *= 0.5;
  const auto fit = fit_serial(ScalingMode::Strong, seen);
  REQUIRE(fit);
  CHECK(fit->worst == 4);
  CHECK(fit->worst_error > 0.1);
}

TEST_CASE("Without a second size there is no serial part", "[planner][scaling]") {
  CHECK_FALSE(fit_serial(ScalingMode::Strong, {{1, 1}}));
  CHECK_FALSE(fit_serial(ScalingMode::Weak, {}));
  CHECK_FALSE(serial_part(ScalingMode::Strong, {1, 1}));
}

TEST_CASE("Karp and Flatt: no speed-up at all is all in series, a full one nothing",
          "[planner][scaling]") {
  for (const ScalingMode mode : {ScalingMode::Strong, ScalingMode::Weak}) {
    CHECK(*serial_part(mode, {8, 1}) == Approx(1));
    CHECK(*serial_part(mode, {8, 8}) == Approx(0).margin(1e-15));
    CHECK(*serial_part(mode, {8, 9}) < 0);
  }
}

TEST_CASE("A trend is told from the first and the last", "[planner][scaling]") {
  CHECK(trend_of({0.01, 0.03}) == Trend::Rising);
  CHECK(trend_of({0.03, 0.02, 0.01}) == Trend::Falling);
  CHECK(trend_of({0.10, 0.11}) == Trend::Constant);
  CHECK(trend_of({0.0001, 0.0009}) == Trend::Constant);  // less than can be told
  CHECK_FALSE(trend_of({0.1}));
}

}  // namespace meshplan::planner
