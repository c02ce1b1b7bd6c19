// Sets of recomputed modules: which of them differ for a model, and where a search tries them.
#include "search/module_choices.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "planner/search/fake_costs.hpp"
#include "planner/search/search.hpp"
#include "planner/search/space.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

using Catch::Matchers::Contains;
using models::Module;
using program::Recompute;
using program::RecomputeKind;

/// Names of the sets that are left, in their order.
std::vector<std::string> different_for(const char* model, const std::vector<std::string>& names) {
  std::vector<Recompute> choices;
  for (const std::string& name : names) choices.push_back(program::parse_recompute(name));
  std::vector<std::string> left;
  for (const Recompute& recompute : different_recompute(models::load_preset(model), choices))
    left.push_back(program::recompute_name(recompute));
  return left;
}

using SetNames = std::vector<std::string>;

}  // namespace

TEST_CASE("Sets that come to the same for a model are tried once", "[planner][space][recompute]") {
  CHECK(different_for("llama3-8b", {"none", "selective", "norms+activations+mla_up_proj",
                                    "norms+mlp+moe", "norms+mlp", "moe", "full"}) ==
        SetNames{"none", "selective", "norms+mlp", "full"});
  // Activations are inside the MLP.
  CHECK(different_for("llama3-8b", {"norms+activations+mlp"}) == SetNames{"norms+mlp"});
  // No layer without experts, and no shared ones.
  CHECK(different_for("mixtral-8x7b", {"mlp", "moe+moe_act", "moe", "activations+moe_act"}) ==
        SetNames{"moe", "moe_act"});
  CHECK(different_for("deepseek-v3", {"mlp+moe+shared_experts", "mla_up_proj"}) ==
        SetNames{"mlp+moe", "mla_up_proj"});
}

TEST_CASE("A space names sets of modules, and a misspelled one is refused with the nearest",
          "[planner][space][recompute]") {
  const std::string text = R"({"context_methods": ["ring"], "fewest_context_tokens": 1,
    "max_micro_batch_size": 1, "recompute": ["none", "norms+mlp"], "zero_stages": [0],
    "schedules": [], "max_chunks": 1, "recompute_parts": [], "zero_in_pipelines": false,
    "bucket_factors": [], "rank_orders": [], "offload_optimizer": false,
    "refined_modules": ["attention"]})";
  const Space space = parse_space(text, "mine.json");
  CHECK(space.recompute == std::vector<Recompute>{program::parse_recompute("none"),
                                                  program::parse_recompute("norms+mlp")});
  CHECK(space.refined_modules == std::vector<models::ModuleSet>{{Module::Attention}});
  const std::vector<Candidate> candidates =
      enumerate(small_model(), {.seq_len = 512, .global_batch_size = 1}, {.count = 1}, {}, space);
  REQUIRE(candidates.size() == 2);
  CHECK(describe(candidates[1]) == "one rank mbs1 norms+mlp-recompute");
  std::string misspelled = text;
  misspelled.replace(misspelled.find("norms+mlp"), 9, "norms+mpl");
  CHECK_THROWS_WITH(parse_space(misspelled, "mine.json"),
                    Contains("mine.json: recompute[1]") && Contains("mlp"));
}

TEST_CASE("Pinned modules are selective recompute of them", "[planner][space][recompute]") {
  const Constraints pins{.micro_batch_size = 1, .recompute_modules = {Module::Mlp}};
  const auto candidates = enumerate(small_model(), {.seq_len = 512, .global_batch_size = 1},
                                    {.count = 1}, pins, without_variants());
  REQUIRE_FALSE(candidates.empty());
  for (const Candidate& candidate : candidates)
    CHECK(candidate.recompute ==
          Recompute{.kind = RecomputeKind::Selective, .modules = {Module::Mlp}});
  Constraints both = pins;
  both.recompute = RecomputeKind::Full;
  CHECK_THROWS_WITH(validate(both, 1), Contains("recompute_modules = mlp with recompute = full"));
}

// A device in between what selective recompute needs and what an MLP computed again leaves.
TEST_CASE("A search recomputes modules where whole layers would be too much",
          "[planner][search][recompute]") {
  SearchRequest request;
  request.model = models::load_preset("llama3-8b");
  request.model.num_layers = 8;
  request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 4);
  request.workload = {.seq_len = 8192, .global_batch_size = 16, .precision = DType::BF16};
  request.constraints = {.tp = 4, .pp = 1, .dp = 1, .cp = 1, .micro_batch_size = 4, .sp = true};
  request.memory_reserve = 0;
  request.alternatives = false;
  const CostModel::Estimate estimate = cost_model(request).estimator();
  const auto memory = [&](const char* recompute) {
    Candidate candidate{.parallel = {.tp = 4, .sp = true},
                        .micro_batch_size = 4,
                        .recompute = program::parse_recompute(recompute)};
    return estimate(make_plan(request, candidate), {}).peak_memory_bytes;
  };
  const double selective = memory("selective"), mlp = memory("norms+mlp");
  REQUIRE(mlp < selective);
  REQUIRE(memory("full") < mlp);
  constexpr double kGib = 1 << 30;
  request.cluster.device.memory_gib = (selective + mlp) / 2 / kGib;
  const auto best = [&] {
    const SearchOutcome outcome = search(request, cost_model(request), serial());
    REQUIRE(std::holds_alternative<SearchResult>(outcome));
    return std::get<SearchResult>(outcome).ranked.front();
  };
  const RankedPlan with = best();
  CHECK(with.plan.recompute.kind == RecomputeKind::Selective);
  CHECK_FALSE(with.plan.recompute.modules.empty());
  request.space.refined_modules.clear();
  const RankedPlan without = best();
  CHECK(without.plan.recompute.kind == RecomputeKind::Full);
  CHECK(with.step_time_s() <= without.step_time_s());
}

}  // namespace meshplan::planner
