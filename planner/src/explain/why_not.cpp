#include "planner/explain/why_not.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace meshplan::planner {
namespace {

/// What the stack refuses of the changed plan, and not of the one that was given.
std::vector<program::Violation> new_refusals(const program::Plan& given,
                                             const program::Plan& changed) {
  std::vector<program::Violation> refused = refusals_of_stack(changed);
  const std::vector<program::Violation> before = refusals_of_stack(given);
  std::erase_if(refused, [&](const program::Violation& violation) {
    return std::ranges::find(before, violation.rule, &program::Violation::rule) != before.end();
  });
  return refused;
}

}  // namespace

WhyNot why_not(const TimedPlan& plan, std::string_view changes, const PricedOn& on) {
  WhyNot answer{.changed = change_choices(plan.plan, changes), .standing = {}};
  const ChangedChoices& changed = answer.changed;
  std::vector<program::Violation> broken =
      changed.broken ? std::vector{*changed.broken} : broken_rules(changed.plan);
  if (broken.empty()) broken = new_refusals(plan.plan, changed.plan);
  if (broken.empty()) {
    answer.standing = standing_of(plan, changed.plan, on);
  } else {
    answer.standing.answer = Answer::BreaksRule;
    answer.standing.broken = std::move(broken);
  }
  return answer;
}

}  // namespace meshplan::planner
