#include "planner/explain/standing.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"

namespace meshplan::planner {
namespace {

/// Do two plans tell the ranks to do the same?
bool same_work(program::Plan a, const program::Plan& b) {
  a.model_hash = b.model_hash;
  a.cluster_name = b.cluster_name;
  a.cluster_hash = b.cluster_hash;
  a.cluster_json = b.cluster_json;
  a.prediction = b.prediction;
  return a == b;
}

Answer answer_of(double slower_by_s, double told_apart_s) {
  if (std::abs(slower_by_s) <= told_apart_s) return Answer::Tie;
  return slower_by_s > 0 ? Answer::Slower : Answer::Faster;
}

}  // namespace

std::string_view name_of(Answer answer) {
  switch (answer) {
    case Answer::Same:
      return "same";
    case Answer::BreaksRule:
      return "breaks_a_rule";
    case Answer::DoesNotFit:
      return "does_not_fit";
    case Answer::Slower:
      return "slower";
    case Answer::Tie:
      return "tie";
    case Answer::Faster:
      return "faster";
  }
  throw InvariantError("unknown answer");
}

const StageMemoryParts& fullest_stage(const PricedPlan& priced) {
  const auto found =
      std::ranges::find(priced.memory, priced.step.largest_stage, &StageMemoryParts::stage);
  require_invariant(found != priced.memory.end(), "the largest stage is among the stages");
  return *found;
}

Standing standing_of(const TimedPlan& first, const program::Plan& other, const PricedOn& on) {
  Standing standing;
  if (same_work(first.plan, other)) return standing;
  standing.broken = broken_rules(other);
  if (standing.broken.empty())
    return standing_of(first, price(other, on.cluster, on.adjustment.get()), on.memory_reserve);
  standing.answer = Answer::BreaksRule;
  return standing;
}

Standing standing_of(const TimedPlan& first, PricedPlan other, double memory_reserve) {
  Standing standing;
  if (same_work(first.plan, other.plan)) return standing;
  const sim::StepPrediction& step = other.step;
  standing.slower_by_s = step.step_time_s - first.step.step_time_s;
  standing.told_apart_s = told_apart_s(first, other);
  standing.missing_bytes =
      std::max(0.0, step.peak_memory_bytes - step.usable_bytes(memory_reserve));
  standing.answer = step.fits(memory_reserve)
                        ? answer_of(standing.slower_by_s, standing.told_apart_s)
                        : Answer::DoesNotFit;
  standing.priced = std::move(other);
  return standing;
}

}  // namespace meshplan::planner
