// The steps of a search, between enumerating candidates and returning an outcome.
#pragma once

#include <optional>
#include <vector>

#include "planner/search.hpp"

namespace meshplan::planner {

/// What became of a candidate: a broken rule, or a price that may or may not fit.
struct Evaluation {
  Candidate candidate;
  std::optional<program::Violation> broken;  // the first; then there is no estimate
  std::optional<sim::Estimate> estimate;
  bool refined = false;  // not of the enumerated space

  bool fits() const { return estimate && estimate->fits(); }
};

/// One estimator per worker, made when it is first needed.
class Estimators {
 public:
  Estimators(const CostModel& costs, int num_workers)
      : costs_(costs), per_worker_(static_cast<std::size_t>(num_workers)) {}

  sim::Estimate operator()(const program::Plan& plan, int worker);

 private:
  const CostModel& costs_;
  std::vector<CostModel::Estimate> per_worker_;
};

/// What the steps share.
struct SearchContext {
  const SearchRequest& request;
  const ParallelFor& parallel_for;
  Estimators& estimators;
};

Evaluation evaluate(const SearchContext& context, const Candidate& candidate, int worker);

/// Checks and prices all candidates; the result is aligned with them.
std::vector<Evaluation> evaluate_all(const SearchContext& context,
                                     const std::vector<Candidate>& candidates,
                                     const Progress& progress);

/// Indexes of the evaluations that fit, fastest first.
std::vector<std::size_t> rank(const std::vector<Evaluation>& evaluations);

/// Variants of good candidates that enumeration leaves out: recomputing only as many layers as
/// memory demands, and stages whose layer counts make up for the embedding and the head.
std::vector<Evaluation> refine(const SearchContext& context,
                               const std::vector<Evaluation>& evaluations);

/// The values that one choice takes over all evaluations, in order of appearance.
struct ChoiceValues {
  Choice choice = Choice::Tp;
  std::vector<std::string> names;
  std::vector<int> value_of;  // index into names, aligned with the evaluations
};
std::vector<ChoiceValues> choice_values(const std::vector<Evaluation>& evaluations);

/// "needs 92.0 GiB > 79.6 GiB; nearest miss tp8 dp16 mbs1"
std::string memory_shortage(const Evaluation& evaluation);

std::vector<Rejection> group_rejections(const std::vector<Evaluation>& evaluations);

/// The evaluation that obeys the rules and lacks the least memory.
std::optional<std::size_t> nearest_miss(const std::vector<Evaluation>& evaluations);

/// For every other value of every choice, compared with `best`.
std::vector<Alternative> alternatives_to(const Evaluation& best, const SearchContext& context,
                                         const std::vector<Evaluation>& evaluations);

}  // namespace meshplan::planner
