#include "planner/explain/explanation.hpp"

#include <cstdint>
#include <utility>

#include "core/error.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::planner {
namespace {

/// @returns nothing of a plan that takes long to play, or has too many operations
std::optional<PricedPlan> price_if_short(const program::Plan& plan, const PricedOn& on) {
  constexpr std::int64_t kMostEvents = 3'000'000;  // half a second of processor time
  try {
    return price_within(kMostEvents, plan, on.cluster, on.adjustment.get());
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace

SearchRequest search_for(const program::Plan& plan, const PricedOn& on) {
  SearchRequest request{.model = plan.model,
                        .cluster = on.cluster,
                        .stack = plan.stack,
                        .adjustment = on.adjustment,
                        .workload = plan.workload,
                        .constraints = {},
                        .memory_reserve = on.memory_reserve};
  request.constraints.rank_order = plan.rank_order;
  request.constraints.frozen = plan.frozen;
  request.constraints.uneven_batch = plan.uneven_batch;
  request.constraints.expert_imbalance = plan.expected_expert_imbalance;
  request.constraints.expert_dispatch_fp8 = plan.expert_dispatch_fp8;
  return request;
}

ThumbStanding rule_of_thumb_beside(const TimedPlan& first, const PricedOn& on) {
  ThumbStanding thumb{.rule = rule_of_thumb(search_for(first.plan, on)), .standing = {}};
  if (!thumb.rule.plan) return thumb;
  const program::Plan& plan = *thumb.rule.plan;
  if (auto priced = price_if_short(plan, on)) {
    thumb.standing = standing_of(first, *std::move(priced), on.memory_reserve);
    return thumb;
  }
  sim::Estimator estimator(on.cluster, plan.stack.software, on.adjustment);
  thumb.estimated_times =
      estimator.estimate(plan).step_time_s / estimator.estimate(first.plan).step_time_s;
  return thumb;
}

Rival rival_beside(const TimedPlan& first, const program::Plan& other, const PricedOn& on) {
  Rival rival{.standing = standing_of(first, other, on), .plan = other, .turning_points = {}};
  if (rival.standing.priced)
    rival.turning_points = turning_points(first, *rival.standing.priced, on);
  return rival;
}

Explanation explain(const program::Plan& plan, const PricedOn& on,
                    const std::optional<program::Plan>& rival) {
  Explanation explanation{.priced = price(plan, on.cluster, on.adjustment.get())};
  const PricedPlan& priced = explanation.priced;
  explanation.memory_factor = memory_factor(priced, on.memory_reserve);
  explanation.sensitivities = sensitivities(priced, on);
  explanation.thumb = rule_of_thumb_beside(priced, on);
  if (rival) explanation.rival = rival_beside(priced, *rival, on);
  return explanation;
}

}  // namespace meshplan::planner
