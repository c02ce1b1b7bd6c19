// Closes the loop: measured traces correct a cluster's operators and collectives.
#pragma once

#include <optional>
#include <vector>

#include "program/trace/trace.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

struct Refinement {
  Cluster cluster;
  int operators = 0;    // signatures that were corrected
  int collectives = 0;  // kinds and group sizes
  /// Mean absolute error of the step times of traces that took no part, before and after; absent
  /// for fewer than two traces.
  std::optional<double> held_out_before;
  std::optional<double> held_out_after;
};

/// Plays each trace's plan on the cluster and compares span by span. What an operator of one
/// signature (or a collective of one kind and group size) took over what it was predicted to take
/// corrects its entry of the table, drawn towards 1 where it was seen seldom. Nothing is keyed by a
/// plan. Each trace in turn is predicted from the others.
/// @throws ConfigError if a trace is not measured, holds no spans, or does not fit the cluster
Refinement refine(const Cluster& cluster, const std::vector<program::Trace>& traces);

}  // namespace meshplan::sim
