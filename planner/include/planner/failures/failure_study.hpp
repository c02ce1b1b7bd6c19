// What failures make of one plan: months of them played, and what other checkpoints, intervals and
// numbers of spare nodes would make of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/failures/failure_play.hpp"

namespace meshplan::planner {

/// Checkpoints in one place, with the best interval there.
struct PlacePlay {
  CheckpointPlace place = CheckpointPlace::Storage;
  std::optional<Goodput> closed_form = {};  // absent: a partner's memory on a single node
  std::optional<FailurePlay> play = {};     // likewise
  bool chosen = false;                      // by the assumptions
};

struct SparesPlay {
  int spare_nodes = 0;
  FailurePlay play;
};

struct IntervalPlay {
  double interval_s = 0;
  FailurePlay play;
};

struct FailureStudy {
  program::Plan plan;
  sim::Cluster cluster;
  double step_time_s = 0;
  FailureAssumptions assumptions;
  std::vector<std::string> assumed;  // FailureModel::assumed
  PlayOptions options;
  FailureCosts costs;
  Goodput closed_form;
  FailurePlay play;
  std::vector<PlacePlay> places;
  std::vector<IntervalPlay> intervals;  // around the one that was played, ascending
  std::vector<SparesPlay> spares;       // ascending from 0
  /// Index into `spares` of the most useful time per device time that is paid.
  std::size_t worth_having = 0;
};

/// @param step_time_s  of the plan without failures
/// @throws ConfigError as FailureModel and play_failures
FailureStudy study_failures(const program::Plan& plan, const sim::Cluster& cluster,
                            double step_time_s, const FailureAssumptions& assumptions,
                            const PlayOptions& options);

}  // namespace meshplan::planner
