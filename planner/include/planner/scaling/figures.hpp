// What a table that compares plans shows of each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/explain/priced_plan.hpp"
#include "sim/engine/link_traffic.hpp"

namespace meshplan::planner {

struct PlanFigures : PricedPlan {
  std::string description;                // of the plan, in a line
  std::vector<sim::LinkTraffic> traffic;  // of our own software; else empty

  int devices() const { return plan.parallel.world_size(); }
  double tokens_per_s() const;
  /// Bytes that a rank sends in a step, where none are sent twice, the mean over ranks; of other
  /// software they are not counted.
  std::optional<double> bytes_sent() const;
  /// Seconds of a step in which it communicates and nothing hides that.
  double exposed_s() const;
  sim::Interval interval() const { return sim::interval_of(terms, step.step_time_s); }
  /// The largest part of the step beside what the model's FLOPs take at the peak.
  sim::StepPart largest_loss() const;
};

/// Is the part communication that nothing hides?
bool is_communication(sim::StepPart part);

/// @throws ConfigError as price()
PlanFigures figures_of(const program::Plan& plan, const sim::Cluster& cluster);

}  // namespace meshplan::planner
