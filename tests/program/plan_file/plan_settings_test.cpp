#include "program/plan_file/plan_settings.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "program/plan/plan.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using Catch::Contains;

std::string file_text() {
  return to_json(test::make_plan(test::gpt2_style(), {.tp = 2, .pp = 2, .dp = 1}, 4));
}

Plan changed(const std::vector<std::string>& settings) {
  return parse_plan(change_plan(file_text(), "plan.json", settings).text, "plan.json");
}

}  // namespace

TEST_CASE("Settings change single values of a plan", "[program][plan]") {
  const Plan plan = changed({"parallel.pp=1", "parallel.sp=true", "recompute.kind=full",
                             "layers_per_stage=4", "workload.optimizer.learning_rate=0.5"});
  CHECK(plan.parallel == ParallelConfig{.tp = 2, .pp = 1, .dp = 1, .sp = true});
  CHECK(plan.recompute.kind == RecomputeKind::Full);
  CHECK(plan.layers_per_stage == std::vector<int>{4});
  CHECK(plan.workload.optimizer.learning_rate == 0.5);
}

TEST_CASE("What a setting changes is told, and what does not exist is named", "[program][plan]") {
  const auto change = [](const std::string& setting) {
    return change_plan(file_text(), "plan.json", {setting});
  };
  CHECK(change("parallel.tp=1").changes == std::vector<std::string>{"parallel.tp: 2 -> 1"});
  CHECK(change("layers_per_stage=2,2").changes ==
        std::vector<std::string>{"layers_per_stage: [] -> [2,2]"});
  CHECK_THROWS_WITH(change("paralel.tp=1"),
                    Contains("plan.json: --set paralel.tp=1") && Contains("'parallel.tp'"));
  CHECK_THROWS_WITH(change("parallel=1"), Contains("no value of a plan"));
  CHECK_THROWS_WITH(change("parallel.tp"), Contains("expected PATH=VALUE"));
  CHECK_THROWS_AS(change_plan("{}", "plan.json", {"parallel.tp=1"}), ConfigError);
}

// An edit by hand is noticed by the hash of what is embedded; a setting is meant.
TEST_CASE("A setting may change the embedded model", "[program][plan]") {
  CHECK(changed({"model.norm_epsilon=0.001"}).model.norm_epsilon == 0.001);
}

TEST_CASE("Names that may be set elsewhere are among the nearest", "[program][plan]") {
  CHECK_THROWS_WITH(change_plan(file_text(), "plan.json", {"netwrok=1"}, {"network"}),
                    Contains("did you mean 'network'?"));
}

TEST_CASE("Two plans differ in the settings that a file would say differently", "[program][plan]") {
  const Plan plan = changed({});
  CHECK(differing_settings(plan, plan).empty());
  Plan other = changed({"parallel.pp=1", "layers_per_stage=4"});
  other.prediction = Prediction{.step_time_s = 1};
  other.model_hash = "another";
  CHECK(
      differing_settings(plan, other) ==
      std::vector<SettingDifference>{{"parallel.pp", "2", "1"}, {"layers_per_stage", "[]", "[4]"}});
  other = plan;
  other.cluster_name = "here";
  other.cluster_json = R"({"name": "here"})";
  CHECK(differing_settings(plan, other).back() ==
        SettingDifference{"cluster.name", "-", "\"here\""});
}

}  // namespace meshplan::program
