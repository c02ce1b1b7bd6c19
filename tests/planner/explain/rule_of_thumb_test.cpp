#include "planner/explain/rule_of_thumb.hpp"

#include <catch2/catch.hpp>

#include "planner/explain/plans.hpp"
#include "planner/search/space.hpp"
#include "program/checks/check.hpp"

using Catch::Matchers::Contains;

namespace meshplan::planner {
namespace {

SearchRequest request(const char* model, const sim::Cluster& cluster, std::int64_t global_batch,
                      std::int64_t seq_len) {
  SearchRequest request{.model = models::load_preset(model), .cluster = cluster};
  request.model.dropout = 0;
  request.workload = {.seq_len = seq_len, .global_batch_size = global_batch};
  request.workload.precision = DType::BF16;
  return request;
}

std::string picked(const SearchRequest& request) {
  const RuleOfThumb thumb = rule_of_thumb(request);
  return thumb.plan ? describe(candidate_of(*thumb.plan)) : "none";
}

}  // namespace

TEST_CASE("activations of a GPT are 34 s b h / tp a layer, state 6 + 12 / dp bytes a parameter",
          "[planner][thumb]") {
  program::Plan plan = preset_plan("gpt3-175b", {.tp = 8, .pp = 4, .dp = 32, .sp = true}, 64, 2048);
  plan.zero_stage = 1;
  const ThumbMemory memory = thumb_memory(plan);
  CHECK(memory.activations == Approx(34.0 * 2048 * 12288 / 8 * 96));
  CHECK(memory.state == Approx(174.6e9 / 32 * (6 + 12.0 / 32)).epsilon(0.01));
  plan.zero_stage = 0;
  CHECK(thumb_memory(plan).state == Approx(174.6e9 / 32 * 18).epsilon(0.01));
}

TEST_CASE("small models are replicated, larger ones divided in a node, then in a pipeline",
          "[planner][thumb]") {
  CHECK(picked(request("llama3.2-1b", h100s(8), 64, 2048)) == "dp8 mbs1 selective-recompute zero1");
  CHECK(picked(request("llama3-8b", h100s(64), 512, 8192)) ==
        "tp2 sp dp32 mbs1 selective-recompute zero1");
  CHECK(picked(request("llama3-70b", h100s(64), 512, 8192)) ==
        "tp8 sp pp2 dp4 mbs1 selective-recompute zero1");
}

TEST_CASE("experts are divided in a node before a pipeline is made", "[planner][thumb]") {
  const RuleOfThumb thumb = rule_of_thumb(request("mixtral-8x7b", h100s(64), 512, 4096));
  REQUIRE(thumb.plan);
  CHECK(thumb.plan->parallel.tp == 1);
  CHECK(thumb.plan->parallel.ep == 8);
  CHECK(program::check(*thumb.plan).empty());
}

TEST_CASE("the rule has no plan where its count does not fit, and says by how much",
          "[planner][thumb]") {
  const RuleOfThumb thumb = rule_of_thumb(request("llama3.1-405b", h100s(16), 16, 8192));
  CHECK_FALSE(thumb.plan);
  CHECK_THAT(thumb.reason, Contains("too large") && Contains(" GiB > "));
}

TEST_CASE("software goes without what it does not have", "[planner][thumb]") {
  SearchRequest sharded = request("llama3-8b", h100s(64), 512, 8192);
  sharded.stack.software = "torchtitan";
  const RuleOfThumb thumb = rule_of_thumb(sharded);
  REQUIRE(thumb.plan);
  CHECK(thumb.plan->zero_stage == 3);
  CHECK(broken_rules(*thumb.plan).empty());
}

TEST_CASE("what a model's degrees must divide is kept", "[planner][thumb]") {
  // 25 heads: no even tp, so a pipeline comes before.
  SearchRequest odd = request("gpt2-xl", h100s(8), 64, 1024);
  odd.cluster.device.memory_gib = 12;
  const RuleOfThumb thumb = rule_of_thumb(odd);
  REQUIRE(thumb.plan);
  CHECK(thumb.plan->parallel.tp == 1);
  CHECK(thumb.plan->parallel.pp > 1);
}

}  // namespace meshplan::planner
