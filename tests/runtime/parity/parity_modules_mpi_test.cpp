// Recompute of single modules changes no bit of a run: losses, gradients and weights equal those of
// a run that keeps everything, whatever else the plan does.
#include <catch2/catch.hpp>

#include "program/checks/check.hpp"
#include "runtime/parity/parity_fixture.hpp"
#include "runtime/parity/parity_models.hpp"

namespace meshplan::test::parity_modules {
namespace {

using models::Module;
using models::ModuleSet;

constexpr int kModuleSteps = 2;

/// Every module that a model has, one by one and all together.
std::vector<ModuleSet> module_sets(const models::ModelSpec& model) {
  std::vector<Module> single{Module::Norms, Module::Activations, Module::Attention};
  if (model.ffn_size > 0) single.push_back(Module::Mlp);
  if (model.mla) single.push_back(Module::MlaUpProj);
  if (model.moe) single.insert(single.end(), {Module::Moe, Module::MoeAct});
  if (model.moe && model.moe->shared_expert_ffn_size > 0) single.push_back(Module::SharedExperts);
  std::vector<ModuleSet> sets;
  ModuleSet all;
  for (const Module module : single) {
    sets.push_back({module});
    all.add(module);
  }
  sets.push_back(all);
  return sets;
}

struct ModulesJob : ParityJob {
  ModulesJob() : ParityJob{.steps = kModuleSteps} {}

  void check_same_bits(Plan plan, const std::vector<ModuleSet>& sets) {
    REQUIRE(program::check(plan).empty());
    const auto kept = run(plan);
    for (const ModuleSet modules : sets) {
      plan.recompute = {.kind = RecomputeKind::Selective, .modules = modules};
      const auto again = run(plan);
      if (!kept) continue;
      INFO(plan.model.name << ", " << describe(plan) << ", " << models::to_string(modules));
      CHECK(kept->losses == again->losses);
      CHECK(kept->gradients == again->gradients);
      CHECK(kept->weights_hash == again->weights_hash);
    }
  }
  void check_same_bits(const Plan& plan) { check_same_bits(plan, module_sets(plan.model)); }
};

Plan module_plan(const models::ModelSpec& model, const ParallelConfig& parallel) {
  Plan plan = parity_plan(model, parallel);
  if (parallel.dp == 1 && parallel.cp > 1) plan.workload.seq_len = 32;
  return plan;
}

}  // namespace

TEST_CASE("every module of a dense model recomputed changes no bit", "[parity][modules]") {
  ModulesJob job;
  for (const models::ModelSpec& model :
       {llama_style(), gpt2_style(), gemma2_style(), post_norm_style(), latent_style()})
    for (const ParallelConfig& mesh :
         {ParallelConfig{}, ParallelConfig{.tp = 2}, ParallelConfig{.tp = 2, .pp = 2, .sp = true}})
      job.check_same_bits(module_plan(model, mesh));
}

TEST_CASE("every module of a model with experts recomputed changes no bit", "[parity][modules]") {
  ModulesJob job;
  for (const models::ModelSpec& model :
       {shared_experts_style(), capacity_style(), gpt_oss_style(), deepseek_style()}) {
    for (const ParallelConfig& mesh :
         {ParallelConfig{.dp = 2, .ep = 2}, ParallelConfig{.tp = 2, .dp = 2, .ep = 2, .sp = true}})
      job.check_same_bits(module_plan(model, mesh));
    job.check_same_bits(module_plan(model, {.tp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true}),
                        {module_sets(model).back()});
  }
}

TEST_CASE("modules recomputed over cp change no bit", "[parity][modules]") {
  ModulesJob job;
  for (const models::ModelSpec& model : {llama_style(), latent_style(), deepseek_style()})
    for (const ContextMethod method :
         {ContextMethod::AllGather, ContextMethod::Ring, ContextMethod::Ulysses})
      for (const ParallelConfig& mesh :
           {ParallelConfig{.cp = 2}, ParallelConfig{.tp = 2, .cp = 2, .sp = true}}) {
        Plan plan = module_plan(model, mesh);
        plan.context_parallel = method;
        if (!program::check(plan).empty()) continue;  // what a method cannot divide
        job.check_same_bits(plan);
      }
}

TEST_CASE("modules recomputed with weight gradients put off change no bit", "[parity][modules]") {
  ModulesJob job;
  for (models::ModelSpec model : {llama_style(), gpt2_style(), latent_style(), deepseek_style()}) {
    model.num_layers = 4;
    for (const auto& [schedule, vpp] :
         {std::pair{ScheduleKind::ZbH1, 1}, std::pair{ScheduleKind::ZbV, 2},
          std::pair{ScheduleKind::DualPipeV, 2}, std::pair{ScheduleKind::Interleaved, 2}}) {
      Plan plan = module_plan(model, {.tp = 2, .pp = 2, .vpp = vpp, .sp = true});
      plan.schedule = schedule;
      job.check_same_bits(plan);
    }
  }
}

TEST_CASE("modules recomputed with sharded state, in bf16 and of some layers change no bit",
          "[parity][modules]") {
  ModulesJob job;
  for (const models::ModelSpec& model : {llama_style(), gpt2_style(), deepseek_style()}) {
    for (const int stage : {2, 3}) {
      Plan plan = module_plan(model, {.dp = 4});
      plan.zero_stage = stage;
      job.check_same_bits(plan);
    }
    Plan half = module_plan(model, {.tp = 2, .dp = 2, .sp = true});
    half.workload.precision = DType::BF16;
    job.check_same_bits(half);
  }
  Plan some = module_plan(llama_style(), {.pp = 2});
  const auto kept = job.run(some);
  some.recompute = {
      .kind = RecomputeKind::Selective, .num_layers = 1, .modules = {Module::Norms, Module::Mlp}};
  const auto again = job.run(some);
  if (kept) CHECK(kept->gradients == again->gradients);
}

}  // namespace meshplan::test::parity_modules
