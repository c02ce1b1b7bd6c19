// A plan with all that can be said of its step: time, where it goes, how well it is known, memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/rules/rules.hpp"
#include "planner/search/search.hpp"
#include "program/checks/check.hpp"
#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/prediction_terms.hpp"
#include "sim/engine/step_parts.hpp"
#include "sim/engine/step_prediction.hpp"

namespace meshplan::planner {

struct MemoryPart {
  std::string name;  // "activations"
  double bytes = 0;
};

/// What the fullest rank of a stage holds.
struct StageMemoryParts {
  int stage = 0;
  std::vector<MemoryPart> parts;  // largest first, none empty
  double capacity_bytes = 0;
  double total_bytes() const;
};

/// What it takes to tell whether a plan is faster than another.
struct TimedPlan {
  program::Plan plan;
  sim::StepPrediction step;
  std::vector<sim::PredictionTerm> terms;  // of the busiest stage
};

struct PricedPlan : TimedPlan {
  sim::StepParts parts;                  // sum to step.step_time_s
  std::vector<StageMemoryParts> memory;  // of all stages
  double peak_flop_per_s = 0;            // of one rank in the plan's precision: what MFU divides by
};

/// Plays a plan of our own software, as `simulate` does; predicts one of other software as its
/// runs are.
/// @param plan  obeys program::check and, of other software, sim::software_violations
/// @param adjustment  of runs of other software; null: none
/// @throws ConfigError if its ranks are not the cluster's, or its operations too many to play
PricedPlan price(const program::Plan& plan, const sim::Cluster& cluster,
                 const sim::Adjustment* adjustment = nullptr);

/// @returns nothing of a plan of ours that takes more events of the engine
std::optional<PricedPlan> price_within(std::int64_t most_events, const program::Plan& plan,
                                       const sim::Cluster& cluster,
                                       const sim::Adjustment* adjustment = nullptr);

/// The rules that a plan breaks: ours, else its stack's.
std::vector<program::Violation> broken_rules(const program::Plan& plan);

/// What its stack itself refuses of a plan, by its own rules (planner/rules); none of ours.
/// @param told  settings of the stack that the plan has no word for
std::vector<program::Violation> refusals_of_stack(const program::Plan& plan,
                                                  const Facts& told = {});

/// Step times nearer to each other than this are a tie: what the predictions of two plans on one
/// cluster cannot tell apart, and no less than runs of one plan differ by.
double told_apart_s(const TimedPlan& a, const TimedPlan& b);

/// A plan of a search, as the search has played or estimated it.
TimedPlan timed(const RankedPlan& ranked, const sim::Cluster& cluster,
                const sim::Adjustment* adjustment = nullptr);

}  // namespace meshplan::planner
