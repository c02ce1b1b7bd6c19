// The way from one plan's step time to another's: what each thing adds or takes away.
#pragma once

#include <string>
#include <vector>

#include "planner/explain/comparison.hpp"

namespace meshplan::reports {

struct WaterfallTerm {
  sim::StepPart part = sim::StepPart::Ideal;
  double seconds = 0;  // that B has more of it than A
};

/// Every part that either plan has, in the order in which parts are added up. A's step time and the
/// terms sum to B's.
std::vector<WaterfallTerm> waterfall(const planner::ComparedPlans& compared);

/// With three decimals of a second, or of a millisecond for steps that take less than one: shown
/// figures are rounded so that they sum exactly, too.
std::string waterfall_text(const planner::ComparedPlans& compared);
std::string waterfall_json(const planner::ComparedPlans& compared);

}  // namespace meshplan::reports
