#include <catch2/catch.hpp>
#include <fmt/ranges.h>

#include "program/lower/lower.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/memory.hpp"
#include "sim/engine/prediction_terms.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/plans.hpp"
#include "sim/random_plans.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "support/cases.hpp"

namespace meshplan::sim {
namespace {

using program::ScheduleKind;

program::Plan long_plan(ScheduleKind schedule, program::ParallelConfig mesh, int microbatches) {
  program::Plan plan = tiny_plan(mesh, microbatches);
  plan.model.num_layers = 16;
  plan.workload.precision = DType::BF16;
  plan.schedule = schedule;
  return plan;
}

/// First pair of spans that are not the same but for a shift of all times, in words; "" if all are.
/// One check for all of them, since a step has a hundred thousand.
std::string first_difference(const std::vector<program::Span>& some,
                             const std::vector<program::Span>& all, double margin_s) {
  if (some.size() != all.size()) return fmt::format("{} of {} spans", some.size(), all.size());
  const double shift = all.front().start_s - some.front().start_s;
  for (std::size_t s = 0; s < all.size(); ++s)
    if (some[s].name != all[s].name ||
        std::abs(some[s].start_s + shift - all[s].start_s) > margin_s ||
        std::abs(some[s].end_s + shift - all[s].end_s) > margin_s)
      return fmt::format("{} of rank {}: {} to {}, expected {} to {}", all[s].name, all[s].rank,
                         some[s].start_s + shift, some[s].end_s + shift, all[s].start_s,
                         all[s].end_s);
  return "";
}

}  // namespace

// Where memory lies decides on some waits at the end of a step: then all is played.
TEST_CASE(
    "A step whose middle repeats is played once through: step time, breakdown and memory are "
    "those of playing all",
    "[sim][repetition]") {
  struct Case {
    ScheduleKind schedule;
    program::ParallelConfig mesh;
  };
  int played_fewer = 0;
  for (const Case& one : {Case{ScheduleKind::OneFOneB, {.tp = 2, .pp = 1, .dp = 4, .sp = true}},
                          Case{ScheduleKind::OneFOneB, {.pp = 4, .dp = 2}},
                          Case{ScheduleKind::OneFOneB, {.tp = 2, .pp = 8, .sp = true}},
                          Case{ScheduleKind::ZbH1, {.pp = 4, .dp = 2}},
                          Case{ScheduleKind::Interleaved, {.pp = 4, .vpp = 2, .dp = 2}},
                          Case{ScheduleKind::Interleaved, {.tp = 2, .pp = 2, .vpp = 4}},
                          Case{ScheduleKind::ZbV, {.pp = 4, .vpp = 2, .dp = 2}},
                          Case{ScheduleKind::OverlappedOneFOneB, {.pp = 4, .vpp = 2, .dp = 2}},
                          Case{ScheduleKind::OverlappedOneFOneB, {.tp = 2, .pp = 4}},
                          Case{ScheduleKind::DualPipeV, {.pp = 4, .vpp = 2, .dp = 2}},
                          Case{ScheduleKind::DualPipeV, {.tp = 2, .pp = 8, .vpp = 2}}})
    for (const int microbatches : {247, 268})
      for (const bool uneven : {false, true}) {
        program::Plan plan = long_plan(one.schedule, one.mesh, microbatches);
        const int parts = one.mesh.pp * one.mesh.vpp;
        if (uneven && parts > 1 && parts < 16) {
          plan.layers_per_stage.assign(static_cast<std::size_t>(parts), 16 / parts);
          ++plan.layers_per_stage.front();
          --plan.layers_per_stage.back();
        }
        if (uneven && plan.layers_per_stage.empty()) continue;
        const Cluster cluster =
            with_ranks(load_cluster_preset("dgx-h100"), plan.parallel.world_size());
        INFO(to_string(plan.parallel) << " schedule " << static_cast<int>(plan.schedule) << ", "
                                      << microbatches << " micro-batches, uneven " << uneven);
        const auto programs = program::lower_all(plan);
        const SimulationResult all =
            simulate(programs, cluster, {.record_spans = false, .whole_steps = true});
        const SimulatedStep shorter = simulate_step(plan, cluster);
        if (shorter.microbatches_played < microbatches) ++played_fewer;
        CHECK(shorter.step.step_time_s == Approx(all.step_time_s).epsilon(1e-9));
        const Breakdown mean = mean_of(all.breakdown);
        for (const Category category : all_categories())
          CHECK(shorter.step.seconds[category] ==
                Approx(mean[category]).margin(1e-8 * all.step_time_s));
        CHECK(shorter.step.peak_memory_bytes == memory_report(programs, cluster).peak_bytes);
        const StageBreakdown longest = busiest(by_stage(all.breakdown, plan));
        const auto terms = terms_of(programs[static_cast<std::size_t>(longest.stage)], cluster,
                                    longest.seconds, all.step_time_s);
        // The first visit to a layer, which adds to no gradient, is scaled up with the others.
        CHECK(relative_sigma_of(shorter.terms, all.step_time_s) ==
              Approx(relative_sigma_of(terms, all.step_time_s)).epsilon(0.01));
      }
  CHECK(played_fewer >= 12);
}

TEST_CASE("The rest of a second step that goes on as the first did is what playing it gives",
          "[sim][repetition]") {
  constexpr std::uint64_t kSeed = 20261127;
  testing::Random random(kSeed);
  const int kPlans = testing::random_cases(150);
  int shorter = 0, on_gpus = 0;
  for (int i = 0; i < kPlans; ++i) {
    const RandomPlan one = random_plan(random);
    INFO(to_string(one.plan.parallel) << " on " << one.cluster.name << ": "
                                      << fmt::format("{}", fmt::join(one.techniques, ", ")));
    const auto programs = program::lower_all(one.plan);
    const SimulationResult all = simulate(programs, one.cluster, {.whole_steps = true});
    const SimulationResult some = simulate(programs, one.cluster, {});
    CHECK(some.step_time_s == Approx(all.step_time_s).epsilon(1e-9));
    CHECK(some.periodic == all.periodic);
    REQUIRE(some.breakdown.size() == all.breakdown.size());
    for (std::size_t r = 0; r < all.breakdown.size(); ++r)
      for (const Category category : all_categories())
        CHECK(some.breakdown[r].seconds[category] ==
              Approx(all.breakdown[r].seconds[category]).margin(1e-9 * all.step_time_s));
    CHECK(first_difference(some.trace.spans, all.trace.spans, 1e-9 * all.step_time_s) == "");
    if (one.cluster.communication.needs_host) continue;
    ++on_gpus;
    if (some.events < all.events) ++shorter;
  }
  CHECK(shorter >= on_gpus / 4);
}

}  // namespace meshplan::sim
