// Which prices of a plan rest on samples of quite another size.
#pragma once

#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {

/// One kind of operation or communication that is kFarBeyond times larger or smaller than anything
/// measured of it.
struct Extrapolation {
  std::string what;  // "all_reduce of 4 ranks", "linear.forward fp32"
  bool message = false;
  MeasuredSizes sizes;  // asked: the size farthest from the samples
  double seconds = 0;   // all of them in a step, on the stage where they take longest
  bool operator==(const Extrapolation&) const = default;
};

/// Extrapolations of all stages; what takes longest first. What is smaller than its samples counts
/// from 1 % of a stage's seconds on. Empty for a cluster without measurements.
std::vector<Extrapolation> extrapolations(const program::Plan& plan, const Cluster& cluster);

/// Relative standard deviation of a price that is extrapolated `beyond` times. Time grows as a
/// power of size between 0 (a latency) and 1 (a bandwidth); which one holds outside the samples is
/// known to about 0.3, so the time to a factor of beyond^0.3. At most 1.5: a factor of ten in 80 %.
double extrapolation_sigma(double beyond);

}  // namespace meshplan::sim
