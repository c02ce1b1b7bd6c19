#include "planner/explain/sensitivity.hpp"

#include <algorithm>
#include <cmath>

#include "sim/clusters/what_if.hpp"
#include "sim/estimator/estimator.hpp"

namespace meshplan::planner {
namespace {

/// Step times of plans on a cluster with one figure scaled, as estimated.
class ScaledTimes {
 public:
  ScaledTimes(const PricedOn& on, std::string figure) : on_(on), figure_(std::move(figure)) {}

  /// Seconds of the step that took priced.step.step_time_s on the cluster as it is.
  double seconds(const TimedPlan& priced, double factor) const {
    return priced.step.step_time_s * estimate(priced.plan, factor) / estimate(priced.plan, 1);
  }

 private:
  double estimate(const program::Plan& plan, double factor) const {
    sim::Estimator estimator(factor == 1 ? on_.cluster : sim::scaled(on_.cluster, figure_, factor),
                             plan.stack.software);
    return estimator.estimate(plan).step_time_s;
  }

  const PricedOn& on_;
  std::string figure_;
};

double bisect(double low, double high, const auto& difference) {
  constexpr double kPrecision = 1e-3;  // of the factor
  const bool low_is_negative = difference(low) < 0;
  while (high / low > 1 + kPrecision) {
    const double middle = std::sqrt(low * high);
    ((difference(middle) < 0) == low_is_negative ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

/// The factor nearest to 1, in its logarithm, at which a difference changes its sign.
std::optional<double> turn(const auto& difference) {
  const double step = std::sqrt(2.0);
  const bool negative = difference(1) < 0;
  const auto steps = std::lround(2 * std::log2(kMostTurn));
  double outer = 1;
  for (long i = 0; i < steps; ++i) {
    outer *= step;
    for (const bool more : {true, false}) {
      const double factor = more ? outer : 1 / outer;
      if ((difference(factor) < 0) == negative) continue;
      const double inner = more ? outer / step : step / outer;
      return bisect(std::min(inner, factor), std::max(inner, factor), difference);
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Sensitivity> sensitivities(const TimedPlan& priced, const PricedOn& on) {
  constexpr double kMore = 1.1;
  std::vector<Sensitivity> all;
  for (std::string& figure : sim::separate_figures(on.cluster)) {
    const ScaledTimes times(on, figure);
    const double ratio = times.seconds(priced, kMore) / times.seconds(priced, 1 / kMore);
    all.push_back({.figure = std::move(figure),
                   .seconds_of_10_percent = priced.step.step_time_s * (std::sqrt(ratio) - 1)});
  }
  return all;
}

double memory_factor(const TimedPlan& priced, double memory_reserve) {
  return priced.step.peak_memory_bytes / priced.step.usable_bytes(memory_reserve);
}

std::vector<TurningPoint> turning_points(const TimedPlan& first, const TimedPlan& other,
                                         const PricedOn& on) {
  std::vector<TurningPoint> points;
  for (std::string& figure : sim::separate_figures(on.cluster)) {
    const ScaledTimes times(on, figure);
    const auto difference = [&](double factor) {
      return times.seconds(other, factor) - times.seconds(first, factor);
    };
    points.push_back({.figure = std::move(figure), .factor = turn(difference)});
  }
  return points;
}

}  // namespace meshplan::planner
