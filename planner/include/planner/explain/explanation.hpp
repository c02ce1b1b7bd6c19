// All that `meshplan explain` says of a plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/explain/rule_of_thumb.hpp"
#include "planner/explain/sensitivity.hpp"
#include "planner/explain/standing.hpp"

namespace meshplan::planner {

/// A search for the work that a plan does, on the ranks that it does it on.
SearchRequest search_for(const program::Plan& plan, const PricedOn& on);

/// The rule of thumb's plan beside another one.
struct ThumbStanding {
  RuleOfThumb rule;
  std::optional<Standing> standing;  // absent: the rule has no plan, or one that takes long to play
  std::optional<double> estimated_times = {};  // of the latter: as long as the first, as estimated
};

/// What the rule of thumb picks for a plan's model, work and ranks, and what that loses.
ThumbStanding rule_of_thumb_beside(const TimedPlan& first, const PricedOn& on);

/// Another plan, and where it would be as fast.
struct Rival {
  Standing standing;
  program::Plan plan;
  std::vector<TurningPoint> turning_points;  // of one that obeys the rules
};

Rival rival_beside(const TimedPlan& first, const program::Plan& other, const PricedOn& on);

struct Explanation {
  PricedPlan priced;
  double memory_factor = 0;
  std::vector<Sensitivity> sensitivities;
  ThumbStanding thumb;
  std::optional<Rival> rival;
};

/// @param plan  obeys the rules of ours and of the software
/// @param rival  a plan for the same work on the same ranks
/// @throws ConfigError as price()
Explanation explain(const program::Plan& plan, const PricedOn& on,
                    const std::optional<program::Plan>& rival = {});

}  // namespace meshplan::planner
