#include "reports/validation/validation_report.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"

namespace meshplan::reports {
namespace {

ValidationReport with_error(double mean_absolute) {
  ValidationReport report;
  sim::SuiteSummary suite{.suite = "small"};
  suite.step_time = {.rows = 1, .families = 1, .mean_absolute = mean_absolute};
  report.suites.push_back(suite);
  return report;
}

}  // namespace

TEST_CASE("A suite may get half a point worse, not more", "[reports][validation]") {
  const std::string committed = to_json(with_error(0.050));
  CHECK(worse_suites(with_error(0.054), committed, "c.json").empty());
  const auto worse = worse_suites(with_error(0.056), committed, "c.json");
  REQUIRE(worse.size() == 1);
  CHECK_THAT(worse.front(),
             Catch::Contains("small") && Catch::Contains("5.6 %") && Catch::Contains("5.0 %"));
  CHECK_THROWS_AS(worse_suites(with_error(0.05), "{}", "c.json"), ConfigError);
}

TEST_CASE("A committed report with a gap is refused with the place", "[reports][validation]") {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "c.json: suites: is missing"},
      {R"({"suites": [3]})", "c.json: suites[0]: suite: expected a string"},
      {R"({"suites": [{"suite": "smal"}]})", "did you mean 'small'?"},
      {R"({"suites": [{"suite": "small"}]})", "suites[0]: step_time.mape: expected a number"},
      {R"({"suites": [{"suite": "small", "step_time": {"mape": "x"}}]})", "step_time.mape"}};
  for (const auto& [text, message] : cases)
    CHECK_THROWS_WITH(worse_suites(with_error(0.05), text, "c.json"), Catch::Contains(message));
}

TEST_CASE("An unpredicted row keeps its line with the reason", "[reports][validation]") {
  ValidationReport report;
  report.rows.push_back({.id = "a,b", .family = "f", .suite = "s"});
  report.rows.front().step_time_s = 2;
  report.predictions.push_back({.note = "tp: 'x' is not a positive whole number"});
  const std::string csv = to_csv(report);
  CHECK_THAT(csv, Catch::Contains("\"a,b\",f,s,2,,,,,,,tp: 'x' is not a positive whole number\n"));
  CHECK_THAT(to_text(report), Catch::Contains("not predicted"));
}

}  // namespace meshplan::reports
