#include "program/step_report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/error.hpp"

namespace meshplan::test {
namespace {

using program::MeanTiming;
using program::OverRanks;
using program::StepReport;
using program::StepTiming;

StepTiming timing(double scale) {
  StepTiming timing;
  timing.phases_s["forward"] = {scale, 2 * scale, 3 * scale, 1};
  timing.communication["tp"] = {.exposed_s = {scale, scale, scale, 0}, .hidden_s = {}};
  timing.buckets = {{.stage = 1, .bucket = 0, .bytes = 64, .seconds = {0, scale, scale, 2}}};
  timing.busy_share = {0.5, 0.5 + scale / 10, 0.9, 3};
  timing.rank_balance = scale / 4;
  return timing;
}

}  // namespace

TEST_CASE("a step's line reads back as it was written", "[program][watch]") {
  StepReport report{.step = 7,
                    .loss = 1.0 / 3,
                    .gradient_norm = 0.5,
                    .learning_rate = 3e-4,
                    .seconds = 0.25,
                    .tokens_per_s = 4096,
                    .samples_per_s = 16,
                    .mfu = 0.4,
                    .resident_bytes = 1e9,
                    .evaluation_loss = 2.5,
                    .timing = timing(1),
                    .warnings = {"a \"word\"\nof warning"}};
  const std::string line = to_json_line(report);
  CHECK(line.find('\n') == std::string::npos);
  CHECK(program::parse_step_report(line, "log") == report);
  report.mfu.reset();
  report.evaluation_loss.reset();
  report.timing.reset();
  CHECK(program::parse_step_report(to_json_line(report), "log") == report);
  CHECK_THROWS_WITH(program::parse_step_report(R"({"kind": "run"})", "log"),
                    Catch::Contains("kind"));
}

TEST_CASE("the schema of a step's line requires every key of it", "[program][watch]") {
  const auto schema = nlohmann::json::parse(program::step_report_schema());
  const auto line = nlohmann::json::parse(to_json_line(StepReport{.step = 1}));
  for (const auto& [key, value] : line.items())
    if (key != "kind") CHECK(schema["properties"].contains(key));
  CHECK(schema["required"].size() == line.size() - 1);
}

TEST_CASE("the mean of timings is that of every figure", "[program][watch]") {
  MeanTiming mean;
  CHECK_FALSE(mean.mean());
  mean.add(timing(1));
  mean.add(timing(3));
  REQUIRE(mean.mean());
  const StepTiming expected = timing(2);
  CHECK(mean.mean()->phases_s == expected.phases_s);
  CHECK(mean.mean()->communication == expected.communication);
  CHECK(mean.mean()->buckets == expected.buckets);
  CHECK(mean.mean()->busy_share.mean == Approx(0.7));
  CHECK(mean.mean()->rank_balance == Approx(0.5));
  CHECK(mean.mean()->stage_balance == Approx(1.0));
}

}  // namespace meshplan::test
