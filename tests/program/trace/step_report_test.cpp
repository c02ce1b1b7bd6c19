#include "program/trace/step_report.hpp"

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

program::ExpertReport experts(double scale) {
  return {.balance_loss = scale,
          .layers = {{.layer = 3,
                      .min = scale,
                      .mean = 2 * scale,
                      .max = 4 * scale,
                      .max_expert = 1,
                      .ep_imbalance = 1 + scale,
                      .dropped_share = scale / 8}},
          .beyond_plan = {.layer_visits = 2 * scale, .bytes = 4096, .largest_imbalance = 2.5}};
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
                    .experts = experts(2),
                    .warnings = {"a \"word\" \\of warning"}};
  const std::string line = to_json_line(report);
  CHECK(line.find('\n') == std::string::npos);
  CHECK(program::parse_step_report(line, "log") == report);
  // Digits that no clock tells are not written.
  report.timing = timing(1.0 / 3);
  const StepReport rounded = program::parse_step_report(to_json_line(report), "log");
  CHECK(rounded.loss == report.loss);
  CHECK(rounded.timing->phases_s.at("forward").min == 0.333333);
  report.mfu.reset();
  report.evaluation_loss.reset();
  report.timing.reset();
  report.experts.reset();
  CHECK(program::parse_step_report(to_json_line(report), "log") == report);
  report.warnings = {"two\nlines"};  // a warning is a line of its own on the terminal
  CHECK_THROWS_WITH(program::parse_step_report(to_json_line(report), "log"),
                    Catch::Contains("log: warnings[0]: expected one printable line"));
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

TEST_CASE("loads are told by layer, expert and ep rank", "[program][watch]") {
  program::Plan plan;
  plan.workload.seq_len = 4;
  plan.model.num_layers = 3;
  plan.model.moe = models::MoeSpec{.num_experts = 4, .top_k = 1, .dense_layers = {1}};
  plan.parallel.ep = 2;  // experts 0 and 1, 2 and 3
  const std::vector<float> chosen = {4, 0, 2, 2, 1, 1, 6, 0};
  const auto layers = program::layer_loads(plan, chosen);
  REQUIRE(layers.size() == 2);
  CHECK(layers[0] ==
        program::LayerLoad{.layer = 0, .min = 0, .mean = 2, .max = 4, .over = {{2, 1}, {4, 2}}});
  CHECK(layers[0].expert_imbalance() == 2);
  CHECK(layers[1] == program::LayerLoad{.layer = 2,
                                        .min = 0,
                                        .mean = 2,
                                        .max = 6,
                                        .max_expert = 2,
                                        .ep_imbalance = 1.5,
                                        .over = {{2, 1.5}, {4, 3}}});
  // With a capacity: the imbalance is that of the rows that travel.
  plan.model.moe->capacity_factor = 1;
  std::vector<float> both = chosen;
  both.insert(both.end(), {2, 0, 2, 2, 1, 1, 2, 0});
  const auto dropped = program::layer_loads(plan, both);
  CHECK(dropped[0].max == 4);
  CHECK(dropped[0].dropped_share == Approx(2.0 / 8));
  CHECK(dropped[0].ep_imbalance == Approx(4.0 / 3));
  CHECK(dropped[1].dropped_share == Approx(4.0 / 8));
  CHECK(dropped[1].ep_imbalance == 1);
  plan.model.moe.reset();
  CHECK(program::layer_loads(plan, {}).empty());
}

TEST_CASE("a log says the imbalance of other numbers of ranks", "[program][watch]") {
  std::string log;
  for (const double more : {0.0, 0.5}) {
    StepReport step{.step = 1, .experts = program::ExpertReport{}};
    for (const double imbalance : {1.25, 2.0})
      step.experts->layers.push_back(
          {.ep_imbalance = 1.1, .over = {{2, 1.1}, {4, imbalance + more}, {8, 4}}});
    log += to_json_line(step) + "\n";
  }
  const program::ExpertImbalance imbalance = program::imbalance_of_log(log, "log");
  CHECK(imbalance.over(2) == Approx(1.1));
  CHECK(imbalance.over(4) == Approx((1.25 + 2.0 + 1.75 + 2.5) / 4));
  CHECK(imbalance.over(8) == Approx(4));
}

TEST_CASE("a log's imbalance is the mean over its steps and layers", "[program][watch]") {
  std::string log = R"({"kind": "run", "model": "m"})";
  for (const double scale : {0.5, 0.25}) {
    StepReport step{.step = 1, .experts = experts(scale)};
    step.experts->layers.push_back({.ep_imbalance = 1});
    log += "\n" + to_json_line(step);
  }
  CHECK(program::imbalance_of_log(log, "log").over(8) == Approx((1.5 + 1 + 1.25 + 1) / 4));
  CHECK_THROWS_WITH(program::imbalance_of_log(to_json_line(StepReport{.step = 1}), "some.jsonl"),
                    Catch::Contains("some.jsonl") && Catch::Contains("no step of this log"));
  CHECK_THROWS_WITH(program::imbalance_of_log("{}\nnonsense", "some.jsonl"),
                    Catch::Contains("some.jsonl: line 2"));
}

TEST_CASE("a log of before rows beyond the plan were told reads as one without any",
          "[program][watch]") {
  StepReport report{.step = 1, .experts = experts(1)};
  auto line = nlohmann::json::parse(to_json_line(report));
  CHECK(line["experts"]["beyond_plan"]["layer_visits"] == 2);
  line["experts"].erase("beyond_plan");
  report.experts->beyond_plan = {};
  CHECK(program::parse_step_report(line.dump(), "log") == report);
}

TEST_CASE("of the room for rows beyond the plan, a run tells the most of any step",
          "[program][watch]") {
  program::MeanExperts mean;
  program::ExpertReport step = experts(1);
  step.beyond_plan = {.layer_visits = 3, .bytes = 100, .largest_imbalance = 1.5};
  mean.add(step);
  step.beyond_plan = {.layer_visits = 0, .bytes = 300, .largest_imbalance = 0};
  mean.add(step);
  CHECK(mean.mean()->beyond_plan ==
        program::RowsBeyondPlan{.layer_visits = 1.5, .bytes = 300, .largest_imbalance = 1.5});
}

TEST_CASE("a log of other lines than ours is refused with file and line", "[program][watch]") {
  StepReport report{.step = 1};
  report.experts = program::ExpertReport{.layers = {{.layer = 1, .ep_imbalance = 1.5}}};
  const std::string line = to_json_line(report);
  report.experts->layers.push_back({.layer = 2, .ep_imbalance = 1.5});
  CHECK_THROWS_WITH(program::imbalance_of_log(line + "\n" + to_json_line(report), "run.jsonl"),
                    Catch::Contains("run.jsonl: line 2: experts.layers: 2 layers, but 1"));
  CHECK_THROWS_AS(program::imbalance_of_log(R"({"kind": 3})", "run.jsonl"), ConfigError);
}

TEST_CASE("the mean of experts' reports is that of every figure", "[program][watch]") {
  program::MeanExperts mean;
  CHECK_FALSE(mean.mean());
  mean.add(experts(1));
  mean.add(experts(3));
  CHECK(mean.mean() == experts(2));
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
