#include "program/plan/plan.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "program/corruptions.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using Catch::Contains;
using nlohmann::ordered_json;

/// Every field differs from its default.
Plan full_plan() {
  Plan plan = test::make_plan(test::gpt2_style(), {.tp = 2, .pp = 2, .dp = 3, .sp = true}, 4);
  plan.cluster_name = "two boxes";
  plan.cluster_json = R"({"nodes": 2, "link": {"gb_per_s": 12.5}})";
  plan.workload.precision = DType::BF16;
  plan.workload.global_batch_size = 24;
  plan.workload.optimizer = {.kind = OptimizerKind::Sgd,
                             .learning_rate = 0.1,
                             .beta1 = 0.8,
                             .beta2 = 0.99,
                             .epsilon = 1e-6,
                             .weight_decay = 0.01,
                             .momentum = 0.7,
                             .clip_norm = 0,
                             .schedule = LearningRateSchedule::Constant,
                             .warmup_steps = 5,
                             .decay_steps = 100,
                             .minimum_ratio = 0.2};
  plan.rank_order = "tp-cp-ep-pp-dp";
  plan.schedule = ScheduleKind::GPipe;
  plan.micro_batch_size = 2;
  plan.recompute = {.kind = RecomputeKind::Full, .num_layers = 1};
  plan.layers_per_stage = {1, 3};
  plan.prediction = Prediction{
      .step_time_s = 0.25, .peak_memory_bytes = 1e9, .mfu = 0.4, .reasons = {"fits", "fast"}};
  return plan;
}

/// The plan's file after `change`.
template <class Change>
std::string edited(Change change) {
  auto json = ordered_json::parse(to_json(full_plan()));
  change(json);
  return json.dump();
}

}  // namespace

TEST_CASE("A plan reads back as it was written", "[program][plan]") {
  const Plan original = full_plan();
  Plan read = parse_plan(to_json(original), "plan.json");
  CHECK(to_json(read) == to_json(original));
  CHECK(parse_plan(to_json(read), "plan.json") == read);
  // Hashes and the white space of the embedded cluster are set by reading; all else is equal.
  CHECK(ordered_json::parse(read.cluster_json) == ordered_json::parse(original.cluster_json));
  CHECK(read.model_hash.size() == 16);
  CHECK(read.cluster_hash.size() == 16);
  read.model_hash.clear();
  read.cluster_hash.clear();
  read.cluster_json = original.cluster_json;
  CHECK(read == original);
}

TEST_CASE("A plan without cluster and prediction reads back as it was written", "[program][plan]") {
  const Plan original = test::make_plan(test::llama_style());
  const Plan read = parse_plan(to_json(original), "plan.json");
  CHECK(to_json(read) == to_json(original));
  CHECK(read.cluster_json.empty());
  CHECK_FALSE(read.prediction.has_value());
}

TEST_CASE("Only the keys without a sensible default are required", "[program][plan]") {
  const std::string minimal = edited([](ordered_json& json) {
    json = {{"schema_version", 1},
            {"model", json["model"]},
            {"workload", {{"seq_len", 16}, {"global_batch_size", 4}}},
            {"parallel", ordered_json::object()}};
  });
  const Plan plan = parse_plan(minimal, "plan.json");
  CHECK(plan.parallel == ParallelConfig{});
  CHECK(plan.schedule == ScheduleKind::OneFOneB);
  CHECK(plan.workload.precision == DType::F32);
}

TEST_CASE("Errors of a plan file name the file, the path and the rule", "[program][plan]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {edited([](auto& j) { j["mirco_batch_size"] = 2; }),
       "p.json: mirco_batch_size: unknown key; did you mean 'micro_batch_size'?"},
      {edited([](auto& j) { j["workload"]["optimizer"]["beta3"] = 0.1; }),
       "p.json: workload.optimizer.beta3: unknown key; did you mean 'beta"},
      {edited([](auto& j) { j["model"]["num_head"] = 8; }),
       "p.json: model: num_head: unknown key; did you mean 'num_heads'?"},
      {edited([](auto& j) { j.erase("workload"); }), "p.json: workload: required key is missing"},
      {edited([](auto& j) { j["schema_version"] = 2; }), "schema_version: expected"},
      {edited([](auto& j) { j["parallel"]["tp"] = 0; }),
       "parallel.tp: expected a number of at least 1"},
      {edited([](auto& j) { j["workload"]["precision"] = "fp7"; }),
       "unknown value 'fp7'; did you mean"},
      {edited([](auto& j) { j["parallel"]["tp"] = 3; }),
       "p.json: num_heads (8) is not divisible by tp (3)"},
      {edited([](auto& j) { j["parallel"]["dp"] = 5; }), "p.json: global_batch_size (24)"},
      {edited([](auto& j) { j["rank_order"] = "tp-pp"; }), "p.json: rank order 'tp-pp'"},
  };
  for (const auto& [text, message] : cases)
    CHECK_THROWS_WITH(parse_plan(text, "p.json"), Contains(message));
}

TEST_CASE("A model or cluster edited after planning is noticed by its hash", "[program][plan]") {
  CHECK_THROWS_WITH(parse_plan(edited([](auto& j) { j["model"]["ffn_size"] = 128; }), "p.json"),
                    Contains("model_hash") && Contains("plan again"));
  CHECK_THROWS_WITH(parse_plan(edited([](auto& j) { j["cluster"]["nodes"] = 4; }), "p.json"),
                    Contains("cluster_hash") && Contains("plan again"));
  CHECK_THROWS_WITH(parse_plan(edited([](auto& j) { j["cluster"] = nullptr; }), "p.json"),
                    Contains("cluster_hash"));
  // On purpose: without the hash the edited model is used as it is.
  const Plan plan = parse_plan(edited([](auto& j) {
                                 j["model"]["ffn_size"] = 128;
                                 j.erase("model_hash");
                               }),
                               "p.json");
  CHECK(plan.model.ffn_size == 128);
}

TEST_CASE("The white space of an embedded cluster does not change its hash", "[program][plan]") {
  Plan wide = full_plan();
  wide.cluster_json += "\n\n";
  CHECK(to_json(wide) == to_json(full_plan()));
}

TEST_CASE("The schema of a plan lists every key that a plan is written with", "[program][plan]") {
  const auto schema = ordered_json::parse(plan_schema());
  const auto written = ordered_json::parse(to_json(full_plan()));
  CHECK(schema["additionalProperties"] == false);
  for (const auto& [key, value] : written.items()) CHECK(schema["properties"].contains(key));
  CHECK(written.size() == schema["properties"].size());
  CHECK(schema["required"] == ordered_json({"schema_version", "model", "workload", "parallel"}));
}

TEST_CASE("A damaged plan file is refused or read, and nothing else happens", "[program][plan]") {
  int refused = 0;
  for (const std::string& text : test::corruptions(to_json(full_plan()), 200)) {
    try {
      parse_plan(text, "plan.json");
    } catch (const ConfigError&) {
      ++refused;
    }
  }
  CHECK(refused >= 200);  // every truncation at least
}

}  // namespace meshplan::program
