// Says which prices of a plan rest on samples of quite another size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program/plan.hpp"
#include "sim/breakdown.hpp"
#include "sim/extrapolation.hpp"

namespace meshplan::reports {

/// A predicted step time is expected between these in 80 % of cases.
struct Interval {
  double low_s = 0;
  double high_s = 0;
};

/// @param seconds  breakdown of the stage that computes longest
Interval interval_of(const program::Plan& plan, int stage, const sim::Cluster& cluster,
                     const sim::Breakdown& seconds, double step_time_s);

/// Of the cluster that the plan holds; empty without one.
std::vector<sim::Extrapolation> extrapolations_of(const program::Plan& plan);

/// A warning with what is extrapolated, the sizes measured and asked for, and how wide the interval
/// is for it; empty if nothing is.
std::string to_text(const std::vector<sim::Extrapolation>& extrapolations,
                    const std::optional<Interval>& interval);

}  // namespace meshplan::reports
