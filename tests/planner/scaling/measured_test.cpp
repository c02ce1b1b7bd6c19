// Measured points: strict reading, and figures beside a curve.
#include "planner/scaling/measured.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "planner/explain/plans.hpp"
#include "sim/plans.hpp"

namespace meshplan::planner {
namespace {

using Catch::Matchers::Contains;

void refuses(const std::string& text, const std::string& why) {
  CHECK_THROWS_WITH(parse_measured_runs(text, "points.csv"), Contains(why));
}

ScalingCurve tiny_curve() {
  return scale_plan(sim::tiny_plan({}, 64), ScaledAxis::Dp, h100s(1), {.devices = {1, 2, 3, 4}},
                    serial());
}

double predicted_s(const ScalingCurve& curve, std::size_t point) {
  return curve.points[point].figures->step.step_time_s;
}

}  // namespace

TEST_CASE("Runs are read by the names of their columns", "[planner][scaling]") {
  const auto runs = parse_measured_runs("step_time_s,devices\n1.5,8\n\n0.9,16\n", "points.csv");
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].devices == 8);
  CHECK(runs[0].step_time_s == 1.5);
  CHECK(runs[1].devices == 16);
  CHECK(sizes_of(runs) == std::vector<int>{8, 16});
  CHECK(parse_measured_runs("devices,tokens_per_s\n8,1e6\n", "p").front().tokens_per_s == 1e6);
}

TEST_CASE("Wrong tables are refused by line and column", "[planner][scaling]") {
  refuses("", "points.csv: empty");
  refuses("devices,step_time_s\n", "points.csv: no row");
  refuses("devices,step_tme_s\n1,2\n",
          "points.csv:1: unknown column 'step_tme_s'; did you mean 'step_time_s'");
  refuses("step_time_s\n1\n", "points.csv:1: column 'devices' is missing");
  refuses("devices\n1\n", "points.csv:1: expected one of the columns");
  refuses("devices,step_time_s,tokens_per_s\n1,2,3\n", "expected one of the columns");
  refuses("devices,step_time_s,devices\n1,2,1\n", "'devices' stands twice");
  refuses("devices,step_time_s\n\n8,1.0\n8\n", "points.csv:4: 1 cells, expected 2");
  refuses("devices,step_time_s\n8,fast\n", "points.csv:2: column step_time_s: 'fast', expected");
  refuses("devices,step_time_s\n8,-1\n", "points.csv:2: column step_time_s: '-1'");
  refuses("devices,step_time_s\n8,nan\n", "column step_time_s: 'nan'");
  refuses("devices,step_time_s\n0,1\n", "points.csv:2: column devices: '0', expected an integer");
  refuses("devices,step_time_s\n8.5,1\n", "column devices: '8.5'");
}

TEST_CASE("What comes true has no error, and the same efficiency", "[planner][scaling]") {
  const ScalingCurve curve = tiny_curve();
  std::vector<MeasuredSize> runs;
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{3}})
    runs.push_back({.devices = curve.points[i].devices, .step_time_s = predicted_s(curve, i)});
  const MeasuredCurve measured = beside(curve, runs, "points.csv");
  REQUIRE(measured.points.size() == 3);
  for (const MeasuredPoint& point : measured.points) {
    CHECK(point.error == Approx(0).margin(1e-12));
    CHECK(point.inside);
    CHECK(point.efficiency == Approx(curve.points[*point.point].efficiency));
  }
  CHECK(measured.inside == 3);
  CHECK(measured.mean_absolute_error == Approx(0).margin(1e-12));
}

TEST_CASE("Of several runs the median counts; a far one lies outside", "[planner][scaling]") {
  const ScalingCurve curve = tiny_curve();
  const double step_s = predicted_s(curve, 0);
  const MeasuredCurve measured = beside(curve,
                                        {{.devices = 1, .step_time_s = 2 * step_s},
                                         {.devices = 1, .step_time_s = 40 * step_s},
                                         {.devices = 1, .step_time_s = 10 * step_s}},
                                        "points.csv");
  REQUIRE(measured.points.size() == 1);
  CHECK(measured.points[0].runs == 3);
  CHECK(measured.points[0].step_time_s == Approx(10 * step_s));
  CHECK(measured.points[0].low_s == Approx(2 * step_s));
  CHECK(measured.points[0].error == Approx(-0.9));
  CHECK_FALSE(measured.points[0].inside);
  CHECK_FALSE(measured.serial);  // of one size
}

TEST_CASE("Tokens a second are those of the size's step", "[planner][scaling]") {
  const ScalingCurve curve = tiny_curve();
  const MeasuredCurve measured =
      beside(curve, {{.devices = 2, .step_time_s = {}, .tokens_per_s = 64.0 * 128}}, "points.csv");
  CHECK(measured.points[0].step_time_s == Approx(1));
  // 64 sequences over 3 replicas: no such plan, so no such tokens.
  CHECK_THROWS_WITH(
      beside(curve, {{.devices = 3, .step_time_s = {}, .tokens_per_s = 1.0}}, "points.csv"),
      Contains("points.csv: tokens_per_s of 3 devices"));
  const MeasuredCurve known = beside(curve, {{.devices = 3, .step_time_s = 1.0}}, "points.csv");
  CHECK_FALSE(known.points[0].point);
  CHECK(known.predicted == 0);
}

}  // namespace meshplan::planner
