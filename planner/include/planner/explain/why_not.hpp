// Why not another plan: the answer to "why not tp=8,pp=2".
#pragma once

#include <string_view>

#include "planner/explain/plan_changes.hpp"
#include "planner/explain/standing.hpp"

namespace meshplan::planner {

struct WhyNot {
  ChangedChoices changed;
  Standing standing;  // of the changed plan beside the given one
};

/// @param changes  as change_choices reads them
/// @throws ConfigError for a choice or value that there is not, and for a plan whose operations are
/// too many to play
WhyNot why_not(const TimedPlan& plan, std::string_view changes, const PricedOn& on);

}  // namespace meshplan::planner
