#include <memory>

#include "planner/search.hpp"
#include "program/lower.hpp"
#include "sim/engine.hpp"

namespace meshplan::planner {
namespace {

std::size_t number_of_instances(const program::Plan& plan) {
  // Per micro-batch and layer, forward and backward, of a lowered block; the exact number needs
  // the lowering that this guards.
  constexpr std::size_t kPerLayer = 50;
  return kPerLayer * static_cast<std::size_t>(plan.num_microbatches()) *
         static_cast<std::size_t>(plan.model.num_layers + 2);
}

}  // namespace

CostModel cost_model(const sim::Cluster& cluster, std::size_t max_instances) {
  const auto make_estimate = [cluster]() -> CostModel::Estimate {
    const auto estimator = std::make_shared<sim::Estimator>(cluster);
    return [estimator](const program::Plan& plan) { return estimator->estimate(plan); };
  };
  const auto simulate = [cluster, max_instances](const program::Plan& plan) {
    std::optional<double> step_time_s;
    if (number_of_instances(plan) > max_instances) return step_time_s;
    const sim::SimulationResult result = sim::simulate(
        program::lower_all(plan), cluster, sim::SimulationOptions{.record_spans = false});
    step_time_s = result.step_time_s;
    return step_time_s;
  };
  return {.estimator = make_estimate, .simulate = simulate};
}

}  // namespace meshplan::planner
