#include "planner/explain/comparison.hpp"

#include <cmath>
#include <utility>

namespace meshplan::planner {
namespace {

double tokens(const program::Workload& workload) {
  return static_cast<double>(workload.global_batch_size) * static_cast<double>(workload.seq_len);
}

/// As told_apart_s, of plans that have nothing uncertain in common.
double apart_on_two_clusters_s(const PricedPlan& a, const PricedPlan& b) {
  const auto sigma_s = [](const PricedPlan& priced) {
    return priced.step.step_time_s * sim::relative_sigma_of(priced.terms, priced.step.step_time_s);
  };
  return sim::kDeviations80 * std::hypot(sigma_s(a), sigma_s(b));
}

}  // namespace

bool ComparedPlans::ties() const {
  return std::abs(slower_by_s) <= told_apart_s;
}

ComparedPlans compare(PricedPlan a, PricedPlan b, bool same_cluster) {
  const double of_a = tokens(a.plan.workload), of_b = tokens(b.plan.workload);
  const double step_a = a.step.step_time_s, step_b = b.step.step_time_s;
  const double apart = same_cluster ? told_apart_s(a, b) : apart_on_two_clusters_s(a, b);
  const bool same_work = a.plan.model == b.plan.model && a.plan.workload == b.plan.workload &&
                         a.plan.frozen == b.plan.frozen;
  return {.a = std::move(a),
          .b = std::move(b),
          .same_work = same_work,
          .same_cluster = same_cluster,
          .tokens_per_s_a = of_a / step_a,
          .tokens_per_s_b = of_b / step_b,
          .slower_by_s = step_b * of_a / of_b - step_a,
          .told_apart_s = apart};
}

}  // namespace meshplan::planner
