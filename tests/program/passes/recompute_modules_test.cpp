// Recompute of single modules: which operations run again, and what is no longer kept.
#include <catch2/catch.hpp>
#include <set>

#include "core/index.hpp"
#include "program/checks/check.hpp"
#include "program/inspect.hpp"
#include "program/plan/plan_names.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plans.hpp"
#include "program/trace/program_json.hpp"

namespace meshplan::program {
namespace {

using models::Module;
using models::ModuleSet;
using test::block_named;
using test::gemma_style;
using test::gpt2_style;
using test::latent_style;
using test::llama_style;
using test::make_plan;
using NameSet = std::set<std::string>;

/// A dense first layer, then experts with shared ones beside them.
models::ModelSpec expert_style() {
  models::ModelSpec model = llama_style();
  model.name = "expert-style";
  model.moe = models::MoeSpec{.num_experts = 4,
                              .top_k = 2,
                              .expert_ffn_size = 32,
                              .shared_expert_ffn_size = 32,
                              .dense_layers = {0}};
  return model;
}

Plan recomputing(const models::ModelSpec& model, ModuleSet modules,
                 const ParallelConfig& parallel = {}) {
  Plan plan = make_plan(model, parallel);
  plan.recompute = {.kind = RecomputeKind::Selective, .modules = modules};
  return plan;
}

NameSet run_again(const Plan& plan, std::string_view block) {
  NameSet names;
  const Program program = lower(plan, 0);
  for (const Operation& operation : block_named(program, block).backward)
    if (operation.phase == Phase::Recompute)
      CHECK(names.insert(operation.name).second);  // once a layer
  return names;
}

std::int64_t kept_of_layer(const Plan& plan, std::string_view block) {
  return block_named(lower(plan, 0), block).saved_bytes;
}

/// Bytes that recomputing these modules frees of a layer of this kind.
std::int64_t freed(const models::ModelSpec& model, ModuleSet modules, std::string_view block,
                   const ParallelConfig& parallel = {}) {
  Plan plan = recomputing(model, modules, parallel);
  const std::int64_t left = kept_of_layer(plan, block);
  plan.recompute = {};
  return kept_of_layer(plan, block) - left;
}

constexpr std::int64_t kModuleTokens = 16, kBytes = 4;

}  // namespace

TEST_CASE("Modules run again as a whole, but for what backward does not read",
          "[program][recompute]") {
  const auto dense = [](ModuleSet modules) {
    return run_again(recomputing(llama_style(), modules), "dense");
  };
  CHECK(dense({Module::Norms}) == NameSet{"attention_norm", "mlp_norm"});
  CHECK(dense({Module::Activations}) == NameSet{"activation"});
  CHECK(dense({Module::Attention}) == NameSet{"attention"});
  CHECK(dense({Module::Mlp}) == NameSet{"gate_up", "activation"});
  CHECK(dense({Module::Norms, Module::Mlp}) ==
        NameSet{"attention_norm", "mlp_norm", "gate_up", "activation"});

  const auto latent = [](ModuleSet modules) {
    return run_again(recomputing(latent_style(), modules), "dense");
  };
  CHECK(latent({Module::MlaUpProj}) == NameSet{"q_up", "kv_up", "rope", "attention.heads"});
  CHECK(latent({Module::Attention}) == NameSet{"attention"});

  const auto experts = [](ModuleSet modules, std::string_view block) {
    return run_again(recomputing(expert_style(), modules), block);
  };
  CHECK(experts({Module::MoeAct}, "moe") == NameSet{"expert_activation"});
  CHECK(experts({Module::MoeAct}, "dense") == NameSet{});
  CHECK(experts({Module::Activations}, "moe") == NameSet{"expert_activation", "shared_activation"});
  CHECK(experts({Module::SharedExperts}, "moe") == NameSet{"shared_gate_up", "shared_activation"});
  CHECK(experts({Module::Moe}, "dense") == NameSet{});
  const NameSet whole = experts({Module::Moe}, "moe");
  for (const char* name :
       {"router", "dispatch.plan", "dispatch", "expert_gate_up", "expert_activation", "expert_down",
        "shared_gate_up", "shared_activation"})
    CHECK(whole.contains(name));
  CHECK_FALSE(whole.contains("mlp_norm"));
  CHECK_FALSE(whole.contains("shared_down"));
}

TEST_CASE("A whole MLP gathers its input again under sequence parallelism, as without recompute",
          "[program][recompute]") {
  const ParallelConfig mesh{.tp = 2, .sp = true};
  CHECK(run_again(recomputing(llama_style(), {Module::Mlp}, mesh), "dense") ==
        NameSet{"mlp_norm.all_gather", "gate_up", "activation", "attention_norm.all_gather"});
  // Norms behind the MLP read its sum, which is made again.
  const NameSet post =
      run_again(recomputing(gemma_style(), {Module::Mlp}, {.tp = 2}), "sliding_dense");
  CHECK(post.contains("mlp_down"));
  CHECK(post.contains("mlp_down.all_reduce"));
}

TEST_CASE("What modules make is no longer kept", "[program][recompute][memory]") {
  // llama-style: D = 64, F = 96, H = 8 of 8, K = 4; fp32.
  CHECK(freed(llama_style(), {Module::Norms}, "dense") == 2 * kModuleTokens * (64 + 1) * kBytes);
  CHECK(freed(llama_style(), {Module::Activations}, "dense") == kModuleTokens * 96 * kBytes);
  CHECK(freed(llama_style(), {Module::Attention}, "dense") == kModuleTokens * (64 + 8) * kBytes);
  CHECK(freed(llama_style(), {Module::Mlp}, "dense") == kModuleTokens * (2 * 96 + 96) * kBytes);
  // Over two ranks half of the features each.
  CHECK(freed(llama_style(), {Module::Mlp}, "dense", {.tp = 2}) ==
        kModuleTokens * (2 * 96 + 96) / 2 * kBytes);
  // A plain MLP of F = 96: before and behind the activation.
  CHECK(freed(gpt2_style(), {Module::Mlp}, "dense") == kModuleTokens * 2 * 96 * kBytes);
  // Latents: heads of 24 + 24 + 12 side by side, H = 4; the rotated part of the keys, 8, is kept.
  CHECK(freed(latent_style(), {Module::MlaUpProj}, "dense") ==
        kModuleTokens * (4 * (24 + 24 + 12) - 8) * kBytes);
  // Two experts a token, 32 wide: gate, up and activation.
  CHECK(freed(expert_style(), {Module::MoeAct}, "moe") == 2 * kModuleTokens * 32 * kBytes);
  CHECK(freed(expert_style(), {Module::SharedExperts}, "moe") == kModuleTokens * 3 * 32 * kBytes);
  CHECK(freed(expert_style(), {Module::Moe}, "moe") >
        kModuleTokens * (2 * (64 + 3 * 32 + 64) + 3 * 32) * kBytes);
  CHECK(freed(expert_style(), {Module::Moe}, "dense") == 0);
}

TEST_CASE("Modules are the usual ones unless a plan names others", "[program][recompute]") {
  for (const models::ModelSpec& model : {llama_style(), latent_style(), expert_style()}) {
    Plan named = recomputing(model, kCheapModules, {.tp = 2, .sp = true});
    Plan usual = named;
    usual.recompute.modules = {};
    for (const Block& block : lower(usual, 0).blocks)
      CHECK(block.saved_bytes == block_named(lower(named, 0), block.name).saved_bytes);
    CHECK(run_again(usual, "dense") == run_again(named, "dense"));
  }
}

TEST_CASE("Plan files list modules by the names of flags and tables",
          "[program][recompute][plan]") {
  Plan plan = recomputing(llama_style(), {Module::Mlp, Module::Norms});
  const std::string text = to_json(plan);
  CHECK(parse_plan(text, "plan.json").recompute == plan.recompute);
  CHECK_THAT(text, Catch::Contains("\"modules\": [\n      \"norms\",\n      \"mlp\"\n    ]"));
  std::string misspelled = text;
  misspelled.replace(misspelled.find("\"mlp\"\n"), 5, "\"mpl\"");
  CHECK_THROWS_WITH(parse_plan(misspelled, "plan.json"),
                    Catch::Contains("recompute.modules[1]") && Catch::Contains("mlp"));

  CHECK(recompute_name(plan.recompute) == "norms+mlp");
  for (const char* name : {"none", "selective", "full", "norms+mlp", "attention"})
    CHECK(recompute_name(parse_recompute(name)) == name);
  CHECK(parse_recompute("activations+norms") == Recompute{.kind = RecomputeKind::Selective});
  CHECK_THROWS_WITH(parse_recompute("selectiv"), Catch::Contains("selective"));
  CHECK_THROWS_WITH(parse_recompute("norms+atention"), Catch::Contains("attention"));
}

TEST_CASE("Modules that a model lacks, or that another kind does not read, are refused",
          "[program][recompute][check]") {
  const auto messages = [](const Plan& plan) {
    std::vector<std::string> texts;
    for (const Violation& violation : check(plan)) texts.push_back(violation.message);
    return texts;
  };
  CHECK(messages(recomputing(expert_style(), {Module::Moe, Module::SharedExperts})).empty());
  const auto lacking = messages(recomputing(llama_style(), {Module::Moe, Module::MlaUpProj}));
  REQUIRE(lacking.size() == 2);
  CHECK_THAT(lacking[0], Catch::Contains("llama-style has no latent attention"));
  CHECK_THAT(lacking[1], Catch::Contains("no experts; leave 'moe' out"));
  Plan full = recomputing(llama_style(), {Module::Mlp});
  full.recompute.kind = RecomputeKind::Full;
  REQUIRE(messages(full).size() == 1);
  CHECK_THAT(messages(full).front(), Catch::Contains("kind 'full'"));
}

TEST_CASE("In FP8 the input of a product that runs again is kept once", "[program][recompute]") {
  models::ModelSpec model = llama_style();
  model.ffn_size = 128;
  Plan plan = recomputing(model, {Module::Mlp});
  set_precision(plan.workload, Precision::Fp8);
  const Program program = lower(plan, 0);
  for (const Value& value : block_named(program, "dense").values) {
    INFO(value.name);
    if (value.name.starts_with("mlp_norm.fp8")) CHECK(value.storage == Storage::Transient);
    if (value.name == "mlp_norm") CHECK(value.storage == Storage::Saved);
  }
}

}  // namespace meshplan::program
