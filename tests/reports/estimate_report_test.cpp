// The estimate of one plan beside what a play of it says.
#include "reports/estimate_report.hpp"

#include <catch2/catch.hpp>

#include "reports/simulation_report.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::reports {
namespace {

program::Plan pipeline(program::ScheduleKind schedule, int vpp, int tp) {
  program::Plan plan;
  plan.model = models::load_preset("llama3-8b");
  plan.workload = {.seq_len = 4096, .global_batch_size = 16};
  plan.workload.precision = DType::BF16;
  plan.parallel = {.tp = tp, .pp = 4, .vpp = vpp, .sp = tp > 1};
  plan.schedule = schedule;
  return plan;
}

}  // namespace

TEST_CASE("an estimate says the step, the bubble and memory as a play does",
          "[reports][estimate]") {
  using program::ScheduleKind;
  for (const program::Plan& plan :
       {pipeline(ScheduleKind::OneFOneB, 1, 1), pipeline(ScheduleKind::OneFOneB, 1, 2),
        pipeline(ScheduleKind::Interleaved, 2, 2), pipeline(ScheduleKind::ZbH1, 1, 2)}) {
    const sim::Cluster cluster =
        sim::with_ranks(sim::load_cluster_preset("dgx-h100"), plan.parallel.world_size());
    const EstimateReport estimate = estimate_report(plan, cluster, 0.04);
    const SimulationReport played = simulation_report(plan, cluster);
    const double step = played.simulation.step_time_s;
    double bubble = 0;
    for (const sim::StageBreakdown& stage : played.stages)
      bubble += stage.seconds[sim::Category::Bubble] / static_cast<double>(played.stages.size());
    CHECK(std::abs(estimate.step.step_time_s / step - 1) <= sim::kEstimatorTolerance);
    CHECK(bubble > 0.05 * step);
    CHECK(std::abs(estimate.mean_bubble_s - bubble) <= 0.02 * step);
    CHECK(estimate.step.peak_memory_bytes ==
          Approx(played.simulation.memory.peak_bytes).epsilon(0.01));
    CHECK(estimate.tokens_per_s * estimate.step.step_time_s == Approx(16.0 * 4096));
  }
}

}  // namespace meshplan::reports
