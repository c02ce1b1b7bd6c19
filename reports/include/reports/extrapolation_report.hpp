// Says which prices of a plan rest on samples of quite another size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "sim/engine/extrapolation.hpp"
#include "sim/engine/prediction_terms.hpp"

namespace meshplan::reports {

/// What the cluster that the plan holds makes extrapolate; empty without one.
std::vector<sim::Extrapolation> extrapolations_of(const program::Plan& plan);

/// A warning with what is extrapolated, the sizes measured and asked for, and how wide the interval
/// is for it; empty if nothing is.
std::string to_text(const std::vector<sim::Extrapolation>& extrapolations,
                    const std::optional<sim::Interval>& interval);

}  // namespace meshplan::reports
