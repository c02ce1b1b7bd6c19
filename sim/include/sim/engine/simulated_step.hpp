// One plan, lowered for every stage and played: the numbers that `meshplan plan` ranks and writes,
// and that `meshplan simulate` prints.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/breakdown.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/prediction_terms.hpp"
#include "sim/engine/step_prediction.hpp"

namespace meshplan::sim {

struct SimulatedStep {
  StepPrediction step;                // its seconds are the mean over all ranks
  int microbatches_played = 0;        // fewer than all, where they tell what all of them take
  std::int64_t events = 0;            // that the engine went through: what this has cost
  int busiest_stage = 0;              // the stage that computes longest
  std::vector<PredictionTerm> terms;  // of that stage
};

/// A plan's programs, of as many micro-batches as tell what all of them take, with the plan and the
/// memory of all.
struct PlayedPlan {
  int microbatches = 0;
  std::vector<program::Program> programs = {};
  SimulationResult result = {};  // of all, without spans
  std::int64_t events = 0;       // also of what was played in vain
};

/// Micro-batches that play_plan has to play, if the middle of the step repeats as soon as it may.
int fewest_played(const program::Plan& plan, const Cluster& cluster);

/// @throws ConfigError if the plan's ranks are not the cluster's, or its operations too many to
/// play
PlayedPlan play_plan(const program::Plan& plan, const Cluster& cluster);
/// @returns nothing if that takes more than `most_events` beyond `fewest_played` micro-batches
std::optional<PlayedPlan> play_plan_within(std::int64_t most_events, const program::Plan& plan,
                                           const Cluster& cluster);
SimulatedStep simulate_step(const program::Plan& plan, const Cluster& cluster);
SimulatedStep step_of(const PlayedPlan& of_plan, const program::Plan& plan, const Cluster& cluster);

/// Plays `fewest_played` micro-batches in any case, and more only if that takes no more than
/// `most_events` in all.
/// @returns nothing if it does
std::optional<SimulatedStep> simulate_step_within(std::int64_t most_events,
                                                  const program::Plan& plan,
                                                  const Cluster& cluster);

/// All micro-batches of a plan, with layers that run as one operation where that is the same
/// (program::lower_merged): as played of all operations, for a fraction of the time.
/// @returns nothing where it is not the same, as on CPU ranks
std::optional<PlayedPlan> play_merged(const program::Plan& plan, const Cluster& cluster,
                                      const Repetition& repetition = {});

/// The mean over the ranks of each stage.
struct StageBreakdown {
  int stage = 0;
  Breakdown seconds;
};
std::vector<StageBreakdown> by_stage(const std::vector<RankBreakdown>& ranks,
                                     const program::Plan& plan);
/// That computes longest: it sets the pace. @param stages  at least one
const StageBreakdown& busiest(const std::vector<StageBreakdown>& stages);

}  // namespace meshplan::sim
