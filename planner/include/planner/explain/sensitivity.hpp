// What the cluster's figures do to a step: how much faster one makes it, and how far one would have
// to move until another plan is as fast.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/explain/standing.hpp"

namespace meshplan::planner {

/// A tenth more of one figure, as estimated, on the scale of the step time that is shown.
struct Sensitivity {
  std::string figure;                // of sim::separate_figures
  double seconds_of_10_percent = 0;  // that the step takes longer with 1.1 times the figure
  bool operator==(const Sensitivity&) const = default;
};

/// Central differences: the step time's logarithm between 1 / 1.1 and 1.1 times the figure.
std::vector<Sensitivity> sensitivities(const TimedPlan& priced, const PricedOn& on);

/// Times as much memory of each device as it takes for the plan to fit beside the reserve: above 1,
/// it does not fit; below, so much would do.
double memory_factor(const TimedPlan& priced, double memory_reserve);

/// Factors of a figure between which a turning point is looked for.
constexpr double kLeastTurn = 1.0 / 8;
constexpr double kMostTurn = 8;

/// Where one figure alone would make another plan as fast.
struct TurningPoint {
  std::string figure;
  std::optional<double> factor;  // nearest to 1; absent: none between kLeastTurn and kMostTurn
  bool operator==(const TurningPoint&) const = default;
};

/// Of each of sim::separate_figures, the factor nearest to 1 at which `other` takes as long as
/// `first`: found in steps of the square root of 2, then by bisection to 0.1 %. Step times are
/// those of both plans times what the estimator says that a factor does to them.
/// @param first, other  priced on the cluster, for the same work
std::vector<TurningPoint> turning_points(const TimedPlan& first, const TimedPlan& other,
                                         const PricedOn& on);

}  // namespace meshplan::planner
