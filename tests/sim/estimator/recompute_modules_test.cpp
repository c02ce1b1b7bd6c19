// The estimator agrees with the engine, in time and memory, on plans that recompute single modules.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "program/lower/lower.hpp"
#include "program/plan/plan_names.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/memory.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

using models::Module;
using models::ModuleSet;

struct ModulesCase {
  std::string model;
  program::ParallelConfig parallel;
  ModuleSet modules;
  program::ScheduleKind schedule = program::ScheduleKind::OneFOneB;
  std::optional<int> num_layers = std::nullopt;
  int zero_stage = 0;
};

program::Plan plan_with_modules(const ModulesCase& one) {
  program::Plan plan;
  plan.model = models::load_preset(one.model);
  if (plan.model.num_layers > 16) plan.model.num_layers = 16;
  plan.model.mtp_layers = 0;
  plan.workload.seq_len = std::min(4096, plan.model.max_positions);
  plan.workload.precision = DType::BF16;
  plan.workload.global_batch_size = std::int64_t{8} * one.parallel.dp;
  plan.parallel = one.parallel;
  plan.schedule = one.schedule;
  plan.zero_stage = one.zero_stage;
  plan.recompute = {.kind = program::RecomputeKind::Selective,
                    .num_layers = one.num_layers,
                    .modules = one.modules};
  return plan;
}

}  // namespace

TEST_CASE("The estimator and the engine agree on plans that recompute modules",
          "[sim][estimator][recompute]") {
  using program::ScheduleKind;
  for (const ModulesCase& one :
       {ModulesCase{"llama3-8b", {.tp = 4, .dp = 2, .sp = true}, {Module::Mlp}},
        ModulesCase{"llama3-8b", {.tp = 4, .dp = 2, .sp = true}, {Module::Attention}},
        ModulesCase{"llama3-8b", {.tp = 2, .pp = 4, .sp = true}, {Module::Norms, Module::Mlp}},
        ModulesCase{"llama3-8b",
                    {.tp = 2, .pp = 2, .dp = 2, .sp = true},
                    {Module::Norms, Module::Mlp, Module::Attention},
                    ScheduleKind::OneFOneB,
                    3},
        ModulesCase{"llama3-8b",
                    {.tp = 2, .pp = 4, .vpp = 2, .sp = true},
                    {Module::Mlp},
                    ScheduleKind::Interleaved},
        ModulesCase{"llama3-8b", {.pp = 4, .dp = 2}, {Module::Mlp}, ScheduleKind::ZbH1},
        ModulesCase{"llama3-8b", {.dp = 8}, {Module::Mlp}, ScheduleKind::OneFOneB, {}, 3},
        ModulesCase{"gpt2-124m", {.dp = 8}, {Module::Norms, Module::Mlp}},
        ModulesCase{"mixtral-8x7b", {.dp = 8, .ep = 8}, {Module::Moe}},
        ModulesCase{"mixtral-8x7b", {.pp = 2, .dp = 4, .ep = 4}, {Module::Norms, Module::MoeAct}},
        ModulesCase{"deepseek-v3", {.dp = 8, .ep = 8}, {Module::MlaUpProj}},
        ModulesCase{"deepseek-v3",
                    {.pp = 2, .dp = 4, .ep = 4},
                    {Module::Norms, Module::MlaUpProj, Module::Mlp, Module::Moe}}}) {
    const program::Plan plan = plan_with_modules(one);
    const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), plan.parallel.world_size());
    const std::vector<program::Program> programs = program::lower_all(plan);
    const double engine =
        simulate(programs, cluster, {.break_down = false, .record_spans = false}).step_time_s;
    const double memory = memory_report(programs, cluster).peak_bytes;
    const StepPrediction estimate = Estimator(cluster).estimate(plan);
    INFO(one.model << " " << to_string(one.parallel) << " " << models::to_string(one.modules)
                   << ": engine " << engine << " s, estimator " << estimate.step_time_s << " s; "
                   << memory / 1e9 << " and " << estimate.peak_memory_bytes / 1e9 << " GB");
    CHECK(std::abs(estimate.step_time_s / engine - 1) <= (one.zero_stage == 3 ? 0.05 : 0.02));
    CHECK(std::abs(estimate.peak_memory_bytes / memory - 1) <= 0.02);
  }
}

TEST_CASE("An estimator that has seen other modules of a plan's layers says the same",
          "[sim][estimator][recompute]") {
  const ModulesCase one{"deepseek-v3", {.pp = 2, .dp = 4, .ep = 4}, {Module::Moe}};
  const program::Plan plan = plan_with_modules(one);
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), plan.parallel.world_size());
  Estimator warm(cluster);
  for (const Module other : {Module::Norms, Module::Mlp, Module::MoeAct, Module::MlaUpProj}) {
    program::Plan before = plan;
    before.recompute.modules = {other};
    (void)warm.estimate(before);
  }
  const StepPrediction after = warm.estimate(plan), alone = Estimator(cluster).estimate(plan);
  CHECK(after.step_time_s == alone.step_time_s);
  CHECK(after.peak_memory_bytes == alone.peak_memory_bytes);
}

TEST_CASE("More modules take longer and keep less", "[sim][estimator][recompute]") {
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 8);
  Estimator estimator(cluster);
  const auto estimate = [&](ModuleSet modules) {
    return estimator.estimate(
        plan_with_modules({"llama3-8b", {.tp = 2, .pp = 4, .sp = true}, modules}));
  };
  const StepPrediction few = estimate({Module::Norms});
  const StepPrediction more = estimate({Module::Norms, Module::Mlp});
  const StepPrediction most = estimate({Module::Norms, Module::Mlp, Module::Attention});
  CHECK(few.step_time_s < more.step_time_s);
  CHECK(more.step_time_s < most.step_time_s);
  CHECK(few.peak_memory_bytes > more.peak_memory_bytes);
  CHECK(more.peak_memory_bytes > most.peak_memory_bytes);
}

}  // namespace meshplan::sim
