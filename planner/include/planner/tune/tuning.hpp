// What tuning knows: plans, what is predicted of each, and what was measured. All that is decided
// from it is a function of these values: runs, clocks and files belong to the caller.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search/space.hpp"
#include "program/calibration/machine_speed.hpp"
#include "program/plan/plan.hpp"
#include "sim/engine/prediction_terms.hpp"

namespace meshplan::planner {

/// One run of a plan. The runs of one turn follow each other, so that what else a machine does
/// meets all plans of the turn.
struct TuneRound {
  int turn = 0;
  std::vector<double> step_times_s;                   // without warm-up; at least one
  std::optional<program::MachineSpeed> machine = {};  // of ranks on processor cores
  bool operator==(const TuneRound&) const = default;
};

/// What the cost model says of a plan's step.
struct TunePrediction {
  double before_s = 0;  // by the cluster as it was given or calibrated
  double after_s = 0;   // by the cluster as the traces have refined it so far
  std::vector<sim::PredictionTerm> terms = {};  // of after_s
};

struct TuneCandidate {
  program::Plan plan;                       // without cluster and prediction
  std::optional<int> rebalanced_from = {};  // the candidate whose stages were measured
  std::vector<TuneRound> rounds = {};       // in the order in which they ran
  std::optional<std::string> failure = {};  // first cause of a run that failed: it is excluded
  TunePrediction prediction = {};           // not kept: made anew from the traces

  bool has_run() const { return !failure && !rounds.empty(); }
};

/// Seconds of all steps of all rounds. @throws InvariantError without a round
double median_s(const TuneCandidate& candidate);
std::vector<double> step_times_s(const TuneCandidate& candidate);

struct TunePolicy {
  int least_rounds = 3;       // of a plan that may be chosen
  int top = 8;                // plans to measure at most
  double most_seconds = 600;  // of running plans
};

/// Relative standard deviation between rounds of one plan, pooled over all of them:
///   sigma^2 = (s0^2 + sum over plans and rounds (ln x - mean of the plan's ln x)^2)
///             / (1 + sum over plans (rounds - 1)),
/// x = a round's median, s0 = 5 %, which counts as one observation.
double round_sigma(const std::vector<TuneCandidate>& candidates);

/// Two measured plans whose medians differ by no more than this factor less 1 are a tie:
///   max(1 %, t * sigma * sqrt(1 / rounds of a + 1 / rounds of b)),
/// t = sim::kDeviations80.
double told_apart(const TuneCandidate& a, const TuneCandidate& b, double sigma);

/// Has it run often enough to be chosen, or is it so slow that more rounds would not help it?
bool is_settled(const TuneCandidate& candidate, const std::vector<TuneCandidate>& candidates,
                const TunePolicy& policy);

/// Of plans that have run. @returns nothing if none has
struct TuneChoice {
  std::size_t index = 0;          // the simplest of those that the noise does not tell apart
  std::size_t fastest = 0;        // by its median
  std::vector<std::size_t> ties;  // with the fastest, itself among them; ascending medians
  bool complete = false;          // the choice has all rounds
};
/// Chooses among plans with `least_rounds`; if none has as many, among all that have run.
std::optional<TuneChoice> choose(const std::vector<TuneCandidate>& candidates,
                                 const TunePolicy& policy);

/// What calibrated predictions have in common with measurements, and how far they are off beyond.
struct TuneCalibration {
  double factor = 1;   // median of measured / after_s; 1 where nothing has run
  double squares = 0;  // sum of ln(measured / (factor * after_s))^2
  double freedom = 0;  // plans that have run, less 1
};
TuneCalibration calibration_of(const std::vector<TuneCandidate>& candidates);

/// The least seconds that a plan which has not run may be expected to take (one in ten is faster):
///   factor * (after_s - t * s * after_s),    s^2 = (2 s_terms^2 + squares) / (2 + freedom),
/// t = sim::kDeviations80. s_terms is the relative deviation of the difference to the fastest
/// measured plan as the terms of both know it (sim::indistinguishable_s); it counts as two
/// observations. Where nothing has run: the lower end of its own interval; 0 without a prediction.
double optimistic_s(const TuneCandidate& candidate, const std::vector<TuneCandidate>& candidates);

}  // namespace meshplan::planner
