// Layers that the engine plays as one operation each, beside all of their operations.
#include <catch2/catch.hpp>
#include <fmt/ranges.h>

#include "program/lower/lower.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/engine/step_parts.hpp"
#include "sim/plans.hpp"
#include "sim/random_plans.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "support/cases.hpp"

namespace meshplan::sim {
namespace {

using program::ScheduleKind;

std::size_t operations_of(const std::vector<program::Program>& programs) {
  std::size_t all = 0;
  for (const program::Program& program : programs) all += program.instances.size();
  return all;
}

void check_equal(const SimulationResult& merged, const SimulationResult& all) {
  constexpr double kRounding = 1e-10;  // times are sums of up to 1e5 doubles
  CHECK(merged.step_time_s == Approx(all.step_time_s).epsilon(kRounding));
  REQUIRE(merged.breakdown.size() == all.breakdown.size());
  for (std::size_t r = 0; r < all.breakdown.size(); ++r) {
    INFO("rank " << all.breakdown[r].rank);
    for (const Category category : all_categories()) {
      INFO(name_of(category));
      CHECK(merged.breakdown[r].seconds[category] ==
            Approx(all.breakdown[r].seconds[category]).margin(1e-9 * all.step_time_s));
    }
  }
}

program::Plan plan_of(ScheduleKind schedule, program::ParallelConfig mesh, const char* model) {
  constexpr int kMicrobatches = 64;
  program::Plan plan = tiny_plan(mesh, kMicrobatches);
  plan.model = models::load_preset(model);
  plan.model.num_layers = 16;
  plan.workload.precision = DType::BF16;
  plan.workload.seq_len = 4096;  // the host, which issues all operations, keeps ahead
  plan.model.hidden_size = 2048;
  plan.model.ffn_size = 8192;
  plan.schedule = schedule;
  return plan;
}

}  // namespace

TEST_CASE("Layers that run as one operation take as long as their operations, on every schedule",
          "[sim][layer_passes]") {
  struct Case {
    ScheduleKind schedule;
    program::ParallelConfig mesh;
    int zero = 0;
    const char* model = "tiny-llama";
    models::ModuleSet recomputes = {};
  };
  int num_merged = 0;
  for (const Case& one : {Case{ScheduleKind::OneFOneB, {.pp = 4, .dp = 2}},
                          Case{ScheduleKind::OneFOneB, {.tp = 2, .pp = 4, .dp = 2}, 1},
                          Case{ScheduleKind::OneFOneB, {.tp = 2, .pp = 4, .sp = true}},
                          Case{ScheduleKind::OneFOneB, {.tp = 4, .pp = 8, .dp = 2, .sp = true}, 1},
                          Case{ScheduleKind::ZbH1, {.tp = 2, .pp = 4, .dp = 2, .sp = true}, 1},
                          Case{ScheduleKind::Interleaved, {.pp = 4, .vpp = 2, .dp = 2}, 1},
                          Case{ScheduleKind::Interleaved, {.tp = 2, .pp = 4, .vpp = 2, .sp = true}},
                          Case{ScheduleKind::ZbV, {.tp = 2, .pp = 4, .vpp = 2, .sp = true}},
                          Case{ScheduleKind::ZbV, {.pp = 4, .vpp = 2, .dp = 4}, 1},
                          Case{ScheduleKind::OneFOneB,
                               {.pp = 4, .dp = 2},
                               0,
                               "tiny-llama",
                               {models::Module::Mlp, models::Module::Norms}},
                          Case{ScheduleKind::OneFOneB, {.pp = 4, .dp = 2, .ep = 2}, 1, "tiny-moe"},
                          Case{ScheduleKind::Interleaved,
                               {.pp = 4, .vpp = 2, .dp = 4, .ep = 4},
                               1,
                               "tiny-moe",
                               {models::Module::Moe, models::Module::Norms}},
                          Case{ScheduleKind::OneFOneB,
                               {.tp = 2, .pp = 4, .dp = 2, .ep = 4, .sp = true},
                               1,
                               "tiny-moe",
                               {models::Module::Moe}},
                          Case{ScheduleKind::ZbV,
                               {.tp = 4, .pp = 2, .vpp = 2, .dp = 2, .ep = 8, .sp = true},
                               0,
                               "tiny-moe"}}) {
    program::Plan plan = plan_of(one.schedule, one.mesh, one.model);
    if (!one.recomputes.empty())
      plan.recompute = {.kind = program::RecomputeKind::Selective, .modules = one.recomputes};
    plan.zero_stage = one.zero;
    const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), plan.parallel.world_size());
    INFO(to_string(plan.parallel) << " schedule " << static_cast<int>(plan.schedule) << " of "
                                  << one.model);
    const auto programs = program::lower_all(plan);
    const std::optional<PlayedPlan> merged = play_merged(plan, cluster);
    if (!merged) continue;
    ++num_merged;
    CHECK(operations_of(merged->programs) < operations_of(programs));
    const PlayedPlan whole{
        .microbatches = plan.num_microbatches(),
        .programs = programs,
        .result = simulate(programs, cluster, {.record_spans = false, .whole_steps = true})};
    check_equal(merged->result, whole.result);
    // What is listed stands for what is not.
    const StepParts some = parts_of(*merged, plan, cluster), all = parts_of(whole, plan, cluster);
    for (std::size_t part = 0; part < all.seconds.size(); ++part)
      CHECK(some.seconds[part] ==
            Approx(all.seconds[part]).margin(1e-9 * whole.result.step_time_s));
  }
  CHECK(num_merged >= 11);
}

TEST_CASE("Of any plan the layers that run as one operation take as long as their operations",
          "[sim][layer_passes]") {
  constexpr std::uint64_t kSeed = 20261124;
  testing::Random random(kSeed);
  const int kPlans = testing::random_cases(150);
  int shorter = 0;
  for (int i = 0; i < kPlans; ++i) {
    RandomPlan one = random_plan(random);
    const std::optional<PlayedPlan> merged = play_merged(one.plan, one.cluster);
    if (!merged) continue;
    INFO(to_string(one.plan.parallel) << " on " << one.cluster.name << ": "
                                      << fmt::format("{}", fmt::join(one.techniques, ", ")));
    const auto programs = program::lower_all(one.plan);
    if (operations_of(merged->programs) < operations_of(programs)) ++shorter;
    check_equal(merged->result,
                simulate(programs, one.cluster, {.record_spans = false, .whole_steps = true}));
  }
  CHECK(shorter >= 2 * kPlans / 15);
}

}  // namespace meshplan::sim
