// What `meshplan scale` prints: the card's sentences, invalid sizes, columns, CSV and JSON.
#include "reports/scaling/scaling_report.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>

#include "core/csv.hpp"
#include "reports/scaling/strategies_report.hpp"
#include "scaling/scaling_fields.hpp"
#include "scaling/words.hpp"
#include "sim/plans.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::reports {
namespace {

using Catch::Matchers::Contains;
using planner::ScaledAxis;

ScalingReport report_of(const program::Plan& plan, ScaledAxis axis, std::vector<int> devices) {
  const sim::Cluster cluster =
      sim::with_ranks(sim::load_cluster_preset("dgx-h100"), plan.parallel.world_size());
  return {.generator = "meshplan test",
          .cluster = cluster,
          .curve = planner::scale_plan(plan, axis, cluster,
                                       {.devices = std::move(devices), .iso_efficiency = true},
                                       planner::serial()),
          .measured = {},
          .measured_source = {}};
}

std::string card_text(const ScalingReport& report, const std::string& name) {
  for (const CardLine& line : card_lines(report))
    if (line.name == name) return line.text;
  return "";
}

}  // namespace

TEST_CASE("The card names knee, bottleneck, serial part, links and sizes", "[reports][scaling]") {
  const ScalingReport report = report_of(sim::tiny_plan({}, 64), ScaledAxis::Dp, {1, 2, 8, 64});
  CHECK_THAT(card_text(report, "knee"), Contains("devices") || Contains("device:"));
  CHECK_THAT(card_text(report, "serial part"), Contains("Amdahl 1967"));
  CHECK_THAT(card_text(report, "bandwidth"),
             Contains("nvlink") && Contains("infiniband-ndr") && Contains("GB/s a link"));
  CHECK_THAT(card_text(report, "worth testing"), Contains("1 (what all ratios are of"));
  CHECK_FALSE(card_text(report, "iso-efficiency").empty());
  CHECK_THAT(card_text(report, "next bottleneck"), Contains("of the efficiency"));
}

TEST_CASE("No line has more than 100 columns", "[reports][scaling]") {
  const ScalingReport report =
      report_of(sim::tiny_plan({.tp = 2, .pp = 2, .sp = true}, 64), ScaledAxis::Dp, {4, 8, 24, 64});
  std::istringstream text(to_text(report));
  for (std::string line; std::getline(text, line);) CHECK(line.size() <= 100);
}

TEST_CASE("A size without a plan has its row and its rule", "[reports][scaling]") {
  const ScalingReport report = report_of(sim::tiny_plan({}, 64), ScaledAxis::Dp, {1, 3});
  CHECK_THAT(to_text(report), Contains("no plan") && Contains("3 devices: no plan: "));
  const ScalingJson json = json_of(report);
  CHECK_FALSE(json.points[1].valid);
  CHECK_FALSE(json.points[1].rule.empty());
  CHECK_FALSE(json.points[1].step);
}

TEST_CASE("The CSV has as many cells in every row as titles, and the JSON's figures",
          "[reports][scaling]") {
  ScalingReport report = report_of(sim::tiny_plan({}, 64), ScaledAxis::Dp, {1, 2, 3});
  report.measured = planner::beside(
      report.curve, {{.devices = 2, .step_time_s = 0.5}, {.devices = 3, .step_time_s = 0.25}},
      "points.csv");
  const auto rows = parse_csv(to_csv(report), "csv");
  REQUIRE(rows.size() == 4);
  for (const auto& row : rows) CHECK(row.size() == rows.front().size());
  const auto cell = [&](std::size_t row, const std::string& title) {
    const auto found = std::ranges::find(rows.front(), title);
    REQUIRE(found != rows.front().end());
    return rows[row][static_cast<std::size_t>(found - rows.front().begin())];
  };
  const ScalingJson json = json_of(report);
  CHECK(std::stod(cell(2, "speed_up")) == json.points[1].step->speed_up);
  CHECK(std::stod(cell(2, "data_s")) == report.curve.points[1].figures->parts[sim::StepPart::Data]);
  CHECK(cell(2, "measured_step_time_s") == "0.5");
  CHECK(cell(3, "measured_step_time_s") == "0.25");
  CHECK(cell(3, "valid") == "false");
  CHECK(cell(3, "step_time_s") == "");
  CHECK_THAT(cell(3, "message"), Contains("64"));
}

TEST_CASE("Intervals are written in one unit", "[reports][scaling]") {
  CHECK(seconds_between({0.9, 1.21}) == "0.9..1.21 s");
  CHECK(seconds_between({0.00123, 0.0456}) == "1.23..45.6 ms");
  CHECK(seconds_between({120.4, 333.3}) == "120..333 s");
}

TEST_CASE("Sentences are broken before the hundredth column", "[reports][scaling]") {
  const std::string text =
      to_text(std::vector<CardLine>{{"name", std::string(40, 'a') + " " + std::string(60, 'b')}});
  CHECK(text == "name  " + std::string(40, 'a') + "\n      " + std::string(60, 'b') + "\n");
}

}  // namespace meshplan::reports
