// Plays the programs of all ranks: a discrete-event simulation in which operations that run at the
// same time share cores, memory bandwidth, device units and links max-min. A pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "program/lower/lower.hpp"
#include "program/program.hpp"
#include "program/trace/trace.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/breakdown.hpp"
#include "sim/engine/memory.hpp"

namespace meshplan::sim {

/// A longer step than the programs': theirs, and what repeats in its middle as often as is missing.
struct Repetition {
  int period = 1;                     // micro-batches after which the schedule repeats
  std::optional<program::Plan> plan;  // the programs', of more micro-batches
};

struct SimulationOptions {
  bool fold = true;          // play one of all ranks that do the same
  bool contention = true;    // false: every operation runs as if alone
  bool break_down = true;    // fill SimulationResult::breakdown
  bool record_spans = true;  // fill Trace::spans
  int max_steps = 12;        // played until two periods agree
  // false: once the second step goes on as the first did, the rest of it is taken from there
  bool whole_steps = false;
  Repetition repetition;  // of what is asked for, see SimulationResult::repeats
};

struct SimulationResult {
  double step_time_s = 0;  // the period of the loop body
  bool periodic = false;   // false: max_steps were not enough; the last period is given
  bool folded = false;     // trace and breakdown hold one of all ranks that do the same
  int repeats = 0;  // micro-batches after which the middle of the step repeats; 0: it does not
  int added = 0;  // micro-batches: as many as asked for if they are a multiple of these, else none
  // Merged programs: present if they cannot be played so, and all else is of no worth; what must be
  // listed that was not.
  std::optional<program::ListedOperations> must_list;
  int steps_played = 0;
  std::int64_t events = 0;  // starts and ends of operations, each on one lane of one rank
  program::Trace trace;     // of the last step; step_times_s = {step_time_s}
  MemoryReport memory;      // of the programs' stages
  std::vector<RankBreakdown> breakdown;  // of the ranks in the trace
};

/// @param stages  lower_all(plan): one program per stage; or lower_merged(plan)
/// @throws ConfigError if the plan's ranks are not the cluster's
/// @throws InvariantError if the programs wait for each other in a circle (names rank and
/// operation)
SimulationResult simulate(const std::vector<program::Program>& stages, const Cluster& cluster,
                          const SimulationOptions& options = {});

}  // namespace meshplan::sim
