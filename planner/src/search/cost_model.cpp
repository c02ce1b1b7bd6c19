#include <memory>

#include "planner/search/search.hpp"
#include "sim/estimator/estimator.hpp"

namespace meshplan::planner {

CostModel cost_model(const SearchRequest& request) {
  const sim::Cluster& cluster = request.cluster;
  const std::string& software = request.stack.software;
  CostModel costs;
  costs.estimator = [cluster, software, adjustment = request.adjustment]() -> CostModel::Estimate {
    const auto estimator = std::make_shared<sim::Estimator>(cluster, software, adjustment);
    return [estimator](const program::Plan& plan, const sim::Wanted& wanted) {
      return estimator->estimate(plan, wanted);
    };
  };
  if (request.stack.is_own())
    costs.simulate = [cluster](const program::Plan& plan, std::int64_t most_events) {
      return sim::simulate_step_within(most_events, plan, cluster);
    };
  return costs;
}

}  // namespace meshplan::planner
