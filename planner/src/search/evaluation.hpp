// The steps of a search, between enumerating candidates and returning an outcome.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "planner/search/search.hpp"
#include "program/checks/check.hpp"

namespace meshplan::planner {

/// The rule of a plan whose programs would list too many operations, which lowering finds out.
constexpr const char* kTooLong = "operations";

/// What became of a candidate: a broken rule, or a price that may or may not fit.
struct Evaluation {
  Candidate candidate;
  std::optional<program::Violation> broken;  // the first
  std::optional<sim::StepPrediction> estimate;
  std::shared_ptr<const sim::SimulatedStep> simulated;  // of the few that were played
  double reserve = 0;                                   // part of the device that is to stay free
  bool refined = false;                                 // not of the enumerated plans
  /// Index of one that does not fit although it needs no more: then there is no estimate.
  std::optional<std::size_t> smaller;
  double goodput = 1;  // share of the time that trains, if failures are asked for

  /// The best that is known of a plan that obeys the rules.
  const sim::StepPrediction& step() const { return simulated ? simulated->step : *estimate; }
  /// What plans are compared by: the best known step time, over the goodput.
  double effective_s() const { return step().step_time_s / goodput; }
  /// The same of the estimate.
  double estimated_s() const { return estimate->step_time_s / goodput; }
  bool fits() const { return !broken && estimate && step().fits(reserve); }
  double missing_bytes() const { return step().peak_memory_bytes - step().usable_bytes(reserve); }
};

/// One estimator per worker, made when it is first needed.
class Estimators {
 public:
  Estimators(const CostModel& costs, int num_workers)
      : costs_(costs), per_worker_(static_cast<std::size_t>(num_workers)) {}

  sim::StepPrediction operator()(const program::Plan& plan, int worker,
                                 const sim::Wanted& wanted = {});

  /// Gives back what they remember: some 100 MB, which plays can use.
  void forget() { std::ranges::fill(per_worker_, nullptr); }

 private:
  const CostModel& costs_;
  std::vector<CostModel::Estimate> per_worker_;
};

/// What the steps share.
struct SearchContext {
  const SearchRequest& request;
  const ParallelFor& parallel_for;
  Estimators& estimators;
  StopRequested stop = {};
  const FailureModel* failures = nullptr;      // if they are asked for
  mutable std::atomic<bool> cut_short{false};  // whether any step has left something out

  /// Asked before what can be left out; if so, it must be.
  bool stops() const {
    if (!stop || !stop()) return false;
    cut_short = true;
    return true;
  }
};

/// @param wanted  of what is not, the estimate is only a bound
Evaluation evaluate(const SearchContext& context, const Candidate& candidate, int worker,
                    const sim::Wanted& wanted = {});

/// Checks all candidates, and prices those of which no smaller one lacks memory; the result is in
/// their order, without those that a stop left out. A plan needs no less memory if its
/// micro-batches are larger, nor if it keeps all where another recomputes selectively.
std::vector<Evaluation> evaluate_all(const SearchContext& context,
                                     const std::vector<Candidate>& candidates,
                                     const Progress& progress);

/// The indexes of candidates with equal blocks, to be priced by one worker, whose estimator
/// remembers them; those that differ in what activations take, too, smaller ones first.
std::vector<std::vector<std::size_t>> batches_of(const std::vector<Evaluation>& evaluations,
                                                 const std::vector<std::size_t>& indexes);

/// Indexes of the evaluations that fit, fastest first, as estimated: who is worth playing.
std::vector<std::size_t> rank(const std::vector<Evaluation>& evaluations);

/// What became of the variants of candidates (search/variants.hpp).
struct VariantResults {
  std::vector<Evaluation> best;  // the fastest of each candidate, ZeRO stage, offload and schedule
  SearchCounts counts;           // without the candidates themselves
};

/// Prices variants of all candidates that obey the rules, but for those that a bound tells to be
/// slower than the ten fastest candidates with theirs.
VariantResults price_variants(const SearchContext& context,
                              const std::vector<Evaluation>& evaluations);

/// Variants of good candidates that enumeration leaves out: recomputing only as many layers as
/// memory demands, and stages whose layer counts make up for the embedding and the head.
std::vector<Evaluation> refine_best(const SearchContext& context,
                                    const std::vector<Evaluation>& evaluations);

/// Can the predictions not tell these two apart? Of plans that were not played: are they equal?
bool ties(const Evaluation& a, const Evaluation& b);

/// The values that one choice takes over all evaluations, in order of appearance.
struct ChoiceValues {
  Choice choice = Choice::Tp;
  std::vector<std::string> names;
  std::vector<std::size_t> first_of;  // the first evaluation that has it, aligned with the names
  std::vector<int> value_of;          // index into names, aligned with the evaluations
};
std::vector<ChoiceValues> choice_values(const std::vector<Evaluation>& evaluations);

/// Finds the one that lacks the least memory among those that obey the rules and do not fit. One
/// without an estimate lacks at least as much as the smaller one.
std::size_t nearest_of(const std::vector<std::size_t>& members,
                       const std::vector<Evaluation>& evaluations);

/// "needs 92.0 GiB > 76.4 GiB; nearest miss tp8 dp16 mbs1", "needs more than tp8 dp16 mbs1, which
/// needs 92.0 GiB > 76.4 GiB"
std::string memory_shortage(std::size_t index, const std::vector<Evaluation>& evaluations);

/// Everything but the recompute.
using MeshKey = std::tuple<std::array<int, 11>, program::ContextMethod, program::ScheduleKind>;
MeshKey mesh_key(const Candidate& candidate);

std::vector<Rejection> group_rejections(const std::vector<Evaluation>& evaluations);

/// Enumerated plans that turned out too long when they were to be played, as one; none if none did.
std::vector<Rejection> too_long(const std::vector<Evaluation>& evaluations);

/// The evaluation that obeys the rules and lacks the least memory.
std::optional<std::size_t> nearest_miss(const std::vector<Evaluation>& evaluations);

/// The best that a value of a choice can offer: the fastest plan that fits, else the one that lacks
/// the least memory, else the first one, which breaks a rule.
struct Offer {
  std::string choice;  // "tp=4"
  std::optional<std::size_t> fastest;
  std::optional<std::size_t> estimated;  // in place of the fastest: far slower, or not played
  std::optional<std::size_t> miss;
  std::size_t first = 0;
};

/// One offer for every value of every choice that `best` has not.
std::vector<Offer> offers_beside(const Evaluation& best, const std::vector<ChoiceValues>& choices,
                                 const std::vector<Evaluation>& evaluations);

/// What the search answers with: indexes of evaluations.
struct Ranking {
  std::vector<std::size_t> ranked;  // the first, those that tie with it, then the others by time
  std::size_t ties = 0;             // so many tie with the first, itself among them
  std::vector<Offer> offers;        // beside the first of `ranked`
};

/// Plays the best, and the best offers beside them, until none beats the first. Empty if nothing
/// fits.
Ranking rank_played(const SearchContext& context, const CostModel& costs,
                    std::vector<Evaluation>& evaluations);

}  // namespace meshplan::planner
