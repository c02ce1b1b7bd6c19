#pragma once

#include "planner/explain/priced_plan.hpp"
#include "sim/engine/simulated_step.hpp"

namespace meshplan::planner {

/// price() of a plan of ours that has been played.
PricedPlan price_played(const sim::PlayedPlan& played, const program::Plan& plan,
                        const sim::Cluster& cluster);

}  // namespace meshplan::planner
