// What saving costs a run, predicted from its programs: the stall of a save, the time until it is
// complete, and the memory that states take. What a run measures of it: program::SavingReport.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/failures/failure_model.hpp"
#include "program/program.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::planner {

/// When a run saves, and where to.
struct SavingIntervals {
  int checkpoint_every = 0;  // steps between checkpoints on the disk; 0 = only at the end
  std::optional<double> device_mtbf_hours = {};  // instead: the best interval for it
  int memory_every = 0;                          // steps between states in memory; 0 = none
  std::optional<double> storage_gb_per_s = {};   // as in FailureAssumptions
};

/// Saves to one place.
struct PlaceSaving {
  int every = 1;           // steps from one save to the next
  double interval_s = 0;   // these steps, without the stall
  double stall_s = 0;      // that one save holds up a step
  double stall_share = 0;  // stall over interval, as a run measures it
  double lag_s = 0;        // from there until the save is complete, beside training; infinite for
                           // states in memory on a single node, which no other node copies
  /// The next save is due before this one is complete: a checkpoint waits for the one before, a
  /// state in memory is skipped.
  bool is_due_early() const { return lag_s > interval_s; }
};

struct SavingPrediction {
  double bytes = 0;       // of a checkpoint
  double rank_bytes = 0;  // of the rank that saves most: what a run measures as bytes_per_rank
  double step_time_s = 0;
  double storage_bytes_per_s = 0;
  bool is_storage_assumed = false;
  std::optional<PlaceSaving> disk;
  std::optional<PlaceSaving> memory;
  int memory_copies = 0;         // of a rank's size in its node's memory; 0 = none
  double memory_node_bytes = 0;  // that these take of a node
};

/// @param programs  of all stages
/// @param step_time_s  above 0
/// @throws ConfigError for a storage bandwidth that is not above 0
SavingPrediction predict_saving(const std::vector<program::Program>& programs,
                                const sim::Cluster& cluster, double step_time_s,
                                const SavingIntervals& intervals);

}  // namespace meshplan::planner
