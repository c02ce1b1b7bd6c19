#include <memory>

#include "planner/search.hpp"
#include "sim/estimator/estimator.hpp"

namespace meshplan::planner {

CostModel cost_model(const sim::Cluster& cluster) {
  const auto make_estimate = [cluster]() -> CostModel::Estimate {
    const auto estimator = std::make_shared<sim::Estimator>(cluster);
    return [estimator](const program::Plan& plan) { return estimator->estimate(plan); };
  };
  return {.estimator = make_estimate,
          .simulate = [cluster](const program::Plan& plan, std::int64_t most_events) {
            return sim::simulate_step_within(most_events, plan, cluster);
          }};
}

}  // namespace meshplan::planner
