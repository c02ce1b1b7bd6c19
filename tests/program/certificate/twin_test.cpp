// Twins are small and keep what a plan combines.
#include "program/certificate/twin.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "plan/techniques.hpp"
#include "program/certificate/large_plans.hpp"
#include "program/checks/check.hpp"
#include "program/plan/mesh.hpp"

namespace meshplan::program {
namespace {

using test::large_plan;

using NameSet = std::set<std::string>;

NameSet all_names(const TwinSet& set) {
  NameSet names;
  for (const Twin& twin : set.twins) names.insert(twin.techniques.begin(), twin.techniques.end());
  return names;
}

bool has(const Twin& twin, const NameSet& names) {
  return std::ranges::all_of(names, [&](const std::string& name) {
    return std::ranges::find(twin.techniques, name) != twin.techniques.end();
  });
}

/// Each technique of the plan but its precision is in a twin, and so is each pair.
void check_covered(const Plan& plan, const TwinSet& set) {
  REQUIRE(check(plan).empty());
  REQUIRE(!set.twins.empty());
  std::vector<std::string> names;
  for (const std::size_t i : techniques_of(plan, techniques()))
    if (techniques()[i].name != "bf16") names.push_back(techniques()[i].name);
  for (const std::string& a : names)
    for (const std::string& b : names) {
      INFO(a << " with " << b);
      CHECK(std::ranges::any_of(set.twins, [&](const Twin& twin) { return has(twin, {a, b}); }));
    }
  for (const Twin& twin : set.twins) {
    CHECK(twin.plan.parallel.world_size() <= kMostTwinRanks);
    CHECK(check(twin.plan).empty());
    CHECK_NOTHROW(models::validate(twin.plan.model, "twin"));
    CHECK(twin.plan.workload.precision == DType::F32);
    CHECK(twin.plan.model.hidden_size <= 64);
    CHECK(twin.plan.workload.seq_len <= 64);
  }
}

const Twin& twin_with(const TwinSet& set, const NameSet& names) {
  const auto found =
      std::ranges::find_if(set.twins, [&](const Twin& twin) { return has(twin, names); });
  REQUIRE(found != set.twins.end());
  return *found;
}

}  // namespace

TEST_CASE("three axes fit one twin of eight ranks", "[certificate]") {
  const Plan plan = large_plan("llama3-70b", {.tp = 8, .pp = 2, .dp = 16, .sp = true});
  const TwinSet set = twins_of(plan, TwinPrecision::Exact);
  check_covered(plan, set);
  CHECK(set.uncovered.empty());
  REQUIRE(set.twins.size() == 1);
  CHECK(set.twins.front().plan.parallel == ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .sp = true});
}

TEST_CASE("four axes take several twins that have every pair", "[certificate]") {
  Plan plan = large_plan("llama3.1-405b", {.tp = 8, .cp = 2, .pp = 4, .dp = 8, .sp = true});
  plan.zero_stage = 1;
  plan.context_parallel = ContextMethod::Ring;
  const TwinSet set = twins_of(plan, TwinPrecision::Exact);
  check_covered(plan, set);
  CHECK(set.uncovered.empty());
  CHECK(set.twins.size() <= 4);
  CHECK(all_names(set).contains("a stage in the middle"));
}

TEST_CASE("what a plan may lose as it shrinks is in some twin", "[certificate]") {
  Plan plan = large_plan("llama3-8b", {.tp = 16, .pp = 4, .vpp = 2, .dp = 8, .sp = true});
  plan.schedule = ScheduleKind::Interleaved;
  plan.layers_per_stage = {0, 5, 5, 4, 6, 6, 6, 0};
  plan.recompute = {.kind = RecomputeKind::Full, .num_layers = 2};
  plan.zero_stage = 2;
  plan.zero_shard_group = 2;
  plan.offload_optimizer = true;
  plan.rank_order = "dp-cp-ep-tp-pp";
  const TwinSet set = twins_of(plan, TwinPrecision::Exact);
  check_covered(plan, set);
  for (const char* name : {"a stage in the middle", "uneven stages", "a stage without layers",
                           "copied key heads", "zero-hybrid", "offloaded optimizer"}) {
    INFO(name);
    CHECK(all_names(set).contains(name));
  }
  for (const Twin& twin : set.twins) {
    CHECK(twin.plan.rank_order == plan.rank_order);
    CHECK(twin.plan.offload_optimizer);
    CHECK(twin.plan.recompute.kind == RecomputeKind::Full);
    if (has(twin, {"copied key heads"})) CHECK(kv_copies(twin.plan) == 2);
  }
  const Twin& hybrid = twin_with(set, {"zero-hybrid"});
  CHECK(hybrid.plan.zero_shard_group < hybrid.plan.parallel.dp * hybrid.plan.parallel.cp);
  // Some layers of a stage recompute, not all.
  const Twin& pipelined = twin_with(set, {"pp"});
  const std::vector<int> layers = resolved_layers_per_stage(pipelined.plan);
  const std::vector<int> again = recomputed_layers_per_stage(pipelined.plan);
  bool partly = false;
  for (std::size_t i = 0; i < layers.size(); ++i)
    partly = partly || (again[i] > 0 && again[i] < layers[i]);
  CHECK(partly);
}

TEST_CASE("an uneven batch stays uneven in twins", "[certificate]") {
  Plan plan = large_plan("llama3-8b", {.tp = 2, .pp = 2, .dp = 12, .sp = true});
  plan.micro_batch_size = 4;
  plan.uneven_batch = true;
  plan.zero_stage = 1;
  const std::int64_t round = plan.sequences_per_round();
  const auto twins_with = [&](std::int64_t empty) {
    plan.workload.global_batch_size = 5 * round - empty;
    const TwinSet set = twins_of(plan, TwinPrecision::Exact);
    check_covered(plan, set);
    CHECK(set.uncovered.empty());
    return set;
  };
  for (const std::int64_t empty : {1, 4, 9, 47}) {
    INFO(empty << " empty sequences");
    const TwinSet set = twins_with(empty);
    CHECK(all_names(set).contains("an empty micro-batch") == (empty >= 4));
    CHECK(all_names(set).contains("a micro-batch empty in part") == (empty % 4 != 0));
    for (const Twin& twin : set.twins)
      if (has(twin, {"uneven"})) CHECK(twin.plan.empty_sequences() > 0);
  }
}

TEST_CASE("a model keeps its features at small sizes", "[certificate]") {
  Plan plan = large_plan("deepseek-v3", {.tp = 4, .dp = 16, .ep = 32, .sp = true});
  const TwinSet set = twins_of(plan, TwinPrecision::Exact);
  check_covered(plan, set);
  const models::ModelSpec& small = set.twins.front().plan.model;
  const models::MoeSpec& moe = *small.moe;
  CHECK(small.mla.has_value());
  CHECK(moe.num_experts == 8);
  CHECK(moe.top_k < moe.num_experts);
  CHECK(moe.router.num_groups > moe.router.top_groups);
  CHECK(moe.router.correction_bias);
  CHECK(moe.shared_expert_ffn_size > 0);
  CHECK(moe.dense_layers == std::vector<int>{0});
  CHECK(small.num_layers > 1);

  plan = large_plan("gpt-oss-20b", {.tp = 2, .dp = 4, .sp = true});
  const models::ModelSpec oss = twins_of(plan, TwinPrecision::Exact).twins.front().plan.model;
  CHECK(oss.attention_sinks);
  CHECK(oss.layer_pattern.size() == 2);
  CHECK(oss.window > 0);
  CHECK(oss.num_heads > oss.num_kv_heads);
}

TEST_CASE("a vocabulary that tp does not divide does not in a twin, either", "[certificate]") {
  const Plan plan = large_plan("gpt2-124m", {.tp = 4, .dp = 2});
  REQUIRE(plan.model.vocab_size % 4 != 0);
  const Plan twin = twins_of(plan, TwinPrecision::Exact).twins.front().plan;
  CHECK(twin.model.vocab_size % twin.parallel.tp != 0);
}

TEST_CASE("compressed gradients are certified beside a twin without", "[certificate]") {
  Plan plan = large_plan("llama3-8b", {.tp = 2, .dp = 8});
  plan.compression = {.kind = CompressionKind::Int8};
  const TwinSet set = twins_of(plan, TwinPrecision::Exact);
  check_covered(plan, set);
  const auto compressed = std::ranges::count_if(set.twins, [](const Twin& twin) {
    return twin.plan.compression.kind == CompressionKind::Int8;
  });
  CHECK(compressed > 0);
  CHECK(compressed < std::ssize(set.twins));
  for (const Twin& twin : set.twins)  // no weight moves where gradients are compressed
    CHECK((twin.plan.workload.optimizer.learning_rate < 1e-20) ==
          (twin.plan.compression.kind == CompressionKind::Int8));
}

TEST_CASE("frozen layers stay frozen in proportion", "[certificate]") {
  Plan plan = large_plan("llama3-8b", {.pp = 4, .dp = 2});
  plan.frozen = {"embedding", "layers.0-15", "!layers.3.*norm*"};
  const TwinSet set = twins_of(plan, TwinPrecision::Exact);
  check_covered(plan, set);
  const Plan& twin = twin_with(set, {"pp", "frozen"}).plan;
  CHECK(twin.frozen.front() == "embedding");
  const std::string last = std::to_string(twin.model.num_layers / 2 - 1);
  CHECK(twin.frozen[1] == "layers.0-" + last);
}

TEST_CASE("a custom schedule is kept, and where it needs more ranks that is said",
          "[certificate]") {
  Plan plan = large_plan("llama3-8b", {.pp = 2, .vpp = 2, .dp = 8}, 2);
  plan.schedule = ScheduleKind::Custom;
  plan.custom_schedule = {"0F0,0F1,3F0,3F1,3B0,3B1,0B0,0B1", "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1"};
  const TwinSet small = twins_of(plan, TwinPrecision::Exact);
  check_covered(plan, small);
  CHECK(twin_with(small, {"custom schedule"}).plan.custom_schedule == plan.custom_schedule);

  Plan deep = large_plan("llama3-8b", {.pp = 16, .dp = 2}, 1);
  deep.schedule = ScheduleKind::Custom;
  for (int stage = 0; stage < 16; ++stage)
    deep.custom_schedule.push_back(std::to_string(stage) + "F0," + std::to_string(stage) + "B0");
  REQUIRE(check(deep).empty());
  const TwinSet rest = twins_of(deep, TwinPrecision::Exact);
  CHECK(std::ranges::find(rest.uncovered, "pp") != rest.uncovered.end());
  CHECK(std::ranges::find(rest.uncovered, "custom schedule") != rest.uncovered.end());
  CHECK(std::ranges::find(rest.uncovered, "dp") == rest.uncovered.end());
}

TEST_CASE("in its own precision a plan keeps it, and every token goes to all experts",
          "[certificate]") {
  Plan plan = large_plan("mixtral-8x7b", {.tp = 4, .dp = 8, .ep = 4, .sp = true});
  const Plan twin = twins_of(plan, TwinPrecision::Own).twins.front().plan;
  CHECK(twin.workload.precision == DType::BF16);
  CHECK(twin.model.moe->top_k == twin.model.moe->num_experts);
  plan = large_plan("llama3-8b", {.tp = 4, .dp = 8, .sp = true});
  set_precision(plan.workload, Precision::Fp8);
  const TwinSet float8 = twins_of(plan, TwinPrecision::Own);
  CHECK(has(float8.twins.front(), {"fp8", "tp", "sp", "dp"}));
}

TEST_CASE("a plan of one rank has a twin, too", "[certificate]") {
  const TwinSet set = twins_of(large_plan("llama3-8b", {}), TwinPrecision::Exact);
  REQUIRE(set.twins.size() == 1);
  CHECK(set.twins.front().plan.parallel.world_size() == 1);
  CHECK(set.uncovered.empty());
}

TEST_CASE("one rank runs the same model without any technique", "[certificate]") {
  Plan plan = large_plan("mixtral-8x7b", {.tp = 4, .pp = 2, .dp = 8, .ep = 4, .sp = true});
  plan.zero_stage = 1;
  plan.recompute.kind = RecomputeKind::Full;
  const Plan alone = one_rank_plan(twins_of(plan, TwinPrecision::Exact).twins.front().plan);
  CHECK(check(alone).empty());
  const std::vector<std::size_t> left = techniques_of(alone, techniques());
  REQUIRE(left.size() == 1);
  CHECK(techniques()[left.front()].name == "experts");
}

}  // namespace meshplan::program
