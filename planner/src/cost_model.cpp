#include <memory>

#include "planner/search.hpp"
#include "program/lower.hpp"
#include "sim/engine.hpp"

namespace meshplan::planner {
namespace {

// Operations of one step. The exact number needs the lowering that this is to spare; a lowered
// layer has about 50 operations, forward and backward, and 7 more for every step of a ring. GPUs
// are played one rank per stage, CPU ranks share their host and are all played.
double operations_played(const program::Plan& plan, const sim::Cluster& cluster) {
  constexpr double kOperationsPerLayer = 50, kOperationsPerRingStep = 7;
  const bool ring = plan.context_parallel == program::ContextMethod::Ring;
  const double per_layer =
      kOperationsPerLayer + (ring ? kOperationsPerRingStep * (plan.parallel.cp - 1) : 0);
  const double per_replica = per_layer * plan.num_microbatches() * (plan.model.num_layers + 2);
  const bool all_ranks = cluster.device.kind == sim::DeviceKind::Cpu;
  return per_replica * (all_ranks ? plan.parallel.tp * plan.parallel.dp : 1);
}

double play(const program::Plan& plan, const sim::Cluster& cluster) {
  return sim::simulate(program::lower_all(plan), cluster,
                       sim::SimulationOptions{.break_down = false, .record_spans = false})
      .step_time_s;
}

}  // namespace

CostModel cost_model(const sim::Cluster& cluster, double simulation_budget) {
  const auto make_estimate = [cluster]() -> CostModel::Estimate {
    const auto estimator = std::make_shared<sim::Estimator>(cluster);
    return [estimator](const program::Plan& plan) { return estimator->estimate(plan); };
  };
  return {.estimator = make_estimate,
          .simulate = [cluster](const program::Plan& plan) { return play(plan, cluster); },
          .simulation_cost =
              [cluster](const program::Plan& plan) { return operations_played(plan, cluster); },
          .simulation_budget = simulation_budget};
}

}  // namespace meshplan::planner
