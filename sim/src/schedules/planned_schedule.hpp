#pragma once

#include <optional>
#include <unordered_map>

#include "program/plan/plan.hpp"
#include "schedules/compiled_schedule.hpp"
#include "schedules/plan_keys.hpp"
#include "schedules/wave_solver.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Do stages run alone, whatever others do, and all micro-batches alike? Then a WaveSolver
/// plays the plan.
bool solves_waves(const program::Plan& plan, const Cluster& cluster);

/// A plan's schedule; of many micro-batches so many that the pipeline has long been full, and as
/// many more as do not make a whole round, once more and with a round less.
class PlannedSchedule {
 public:
  /// @param waves  the plan is solved by them, and the schedule asked for memory alone
  PlannedSchedule(const program::Plan& plan, bool waves);

  CompiledSchedule& compiled() { return whole_; }
  const CompiledSchedule& compiled() const { return whole_; }

  /// Seconds before which no stage ends, by stage: the first micro-batch has to arrive, and all of
  /// the work to be done.
  std::vector<double> least_ends(int num_microbatches, const SolverInput& input) const;

  /// Plays all micro-batches of the plan. `out` is overwritten.
  void solve(const program::Plan& plan, bool waves, const SolverInput& input, SolverOutput& out);

 private:
  CompiledSchedule whole_;
  std::optional<CompiledSchedule> shorter_;
  WaveSolver waves_;
  SolverOutput fewer_;  // its memory is used again
};

/// Schedules of plans that were priced before.
class KnownSchedules {
 public:
  PlannedSchedule& of(const program::Plan& plan, const PlanKeys& keys, bool waves);

 private:
  CacheKey key_;
  std::unordered_map<CacheKey, PlannedSchedule, CacheKey::Hash> schedules_;
};

}  // namespace meshplan::sim
