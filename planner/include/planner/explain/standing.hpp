// What is to be said of a plan beside another one: a rule that it breaks, memory that it lacks, or
// the seconds that it gains or loses, and where.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/explain/priced_plan.hpp"
#include "program/checks/check.hpp"

namespace meshplan::planner {

enum class Answer { Same, BreaksRule, DoesNotFit, Slower, Tie, Faster };
/// "same", "breaks_a_rule", "does_not_fit", "slower", "tie", "faster"
std::string_view name_of(Answer answer);

struct Standing {
  Answer answer = Answer::Same;
  std::vector<program::Violation> broken;  // BreaksRule: at least one; there is no price then
  std::optional<PricedPlan> priced;
  double missing_bytes = 0;  // DoesNotFit: on the fullest stage, beside the reserve
  double slower_by_s = 0;    // than the first; negative: faster
  double told_apart_s = 0;   // least difference that is not a tie
};

/// What prices rest on.
struct PricedOn {
  const sim::Cluster& cluster;
  double memory_reserve = sim::kMemoryReserve;  // part of each device that stays free
  std::shared_ptr<const sim::Adjustment> adjustment = nullptr;
};

/// @param other  for as many ranks and the same work as `first`
/// @throws ConfigError for a plan whose operations are too many to play
Standing standing_of(const TimedPlan& first, const program::Plan& other, const PricedOn& on);
/// The same of a plan that obeys the rules and has its price.
Standing standing_of(const TimedPlan& first, PricedPlan other, double memory_reserve);

/// The stage whose memory a plan overflows, or comes nearest to: the step's largest.
const StageMemoryParts& fullest_stage(const PricedPlan& priced);

}  // namespace meshplan::planner
