// Two plans side by side.
#pragma once

#include "planner/explain/priced_plan.hpp"

namespace meshplan::planner {

/// Two plans, each priced on its own cluster.
struct ComparedPlans {
  PricedPlan a;
  PricedPlan b;
  bool same_work = false;     // the same tokens, model and precision in a step
  bool same_cluster = false;  // then they share most of what is uncertain
  double tokens_per_s_a = 0;
  double tokens_per_s_b = 0;
  /// b's step less a's where they do the same work; else b's time for a's tokens less a's.
  double slower_by_s = 0;
  double told_apart_s = 0;  // least difference that is not a tie
  bool ties() const;
};

ComparedPlans compare(PricedPlan a, PricedPlan b, bool same_cluster);

}  // namespace meshplan::planner
