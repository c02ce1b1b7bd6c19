// The plan with which a run goes on when it has another number of ranks than before, or a slow one.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "planner/search/search.hpp"
#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::planner {

/// A run that goes on: its model, global batch, sequence length, precision, optimizer, frozen
/// parameters and gradient compression stay as they are.
struct ReplanRequest {
  program::Plan plan;    // that ran until now, of our own software
  sim::Cluster cluster;  // the ranks that there are now, all of which are used; some may be slow
  /// Another layout than that of `plan` with another dp is taken only where it is faster by more
  /// than this part of the step: with another dp the fewest things change.
  double worth = 0.05;
};

struct Replanned {
  program::Plan plan;      // with its prediction
  double step_time_s = 0;  // predicted
  bool only_dp = false;    // all degrees but dp, micro-batch, buckets and division are as before
  std::string change;      // "dp4 -> dp3", "pp4 -> pp4 uneven, layers 9 9 5 9"
  std::string reason;      // why this one, in one sentence
};

/// Why a run cannot go on with these ranks.
struct NoReplan {
  std::string reason;
};

using ReplanOutcome = std::variant<Replanned, NoReplan>;

/// "dp4 mbs1"; of a plan whose stages are uneven also "layers 9 9 5 9".
std::string layout_text(const program::Plan& plan);

/// Prices `plan` with each dp and micro-batch that uses all ranks, and where ranks differ in speed
/// with its layers divided by that of each stage, too; and searches all layouts. Takes the former
/// unless the latter is faster by more than `worth`. Memory must fit, with
/// sim::default_memory_reserve left free. Where the global batch does not divide, replicas take
/// unequal numbers of micro-batches (Plan::uneven_batch).
/// @throws ConfigError if the cluster lacks what the plan's precision needs
ReplanOutcome replan(const ReplanRequest& request, const ParallelFor& parallel_for);

}  // namespace meshplan::planner
