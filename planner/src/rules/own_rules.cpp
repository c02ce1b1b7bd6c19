#include "rules/own_rules.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.hpp"
#include "program/checks/check.hpp"

namespace meshplan::planner {
namespace {

/// With one of these broken, nothing else can be computed.
constexpr std::array<std::string_view, 5> kLimits = {"positive", "world", "tokens", "tasks",
                                                     "elements"};
/// They are looked at where nothing else is broken.
constexpr std::array<std::string_view, 3> kLast = {"frozen", "fp8", "schedule"};

template <std::size_t n>
bool is_one_of(const std::array<std::string_view, n>& ids, std::string_view id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

std::vector<Judgement> judge_own(const RuleSet& rules, const program::Plan& plan) {
  const std::vector<program::Violation> violations = program::check(plan);
  const bool beyond_limits = std::ranges::any_of(
      violations, [](const auto& violation) { return is_one_of(kLimits, violation.rule); });
  std::vector<Judgement> judgements;
  std::size_t told = 0;
  for (const Rule& rule : rules.rules) {
    Judgement judgement{.id = rule.id,
                        .name = rule.name,
                        .verdict = Verdict::Passed,
                        .effect = rule.effect,
                        .applies = true,
                        .message = rule.reason,
                        .source = rule.source,
                        .nearest = {}};
    for (const program::Violation& violation : violations) {
      if (violation.rule != rule.id) continue;
      ++told;
      judgement.message = judgement.verdict == Verdict::Failed
                              ? judgement.message + "; " + violation.message
                              : violation.message;
      judgement.verdict = Verdict::Failed;
    }
    const bool not_reached = beyond_limits ? !is_one_of(kLimits, rule.id)
                                           : !violations.empty() && is_one_of(kLast, rule.id);
    if (judgement.verdict == Verdict::Passed && not_reached) {
      judgement.verdict = Verdict::Undecidable;
      judgement.message = "looked at when the other rules hold: " + rule.reason;
    }
    judgements.push_back(std::move(judgement));
  }
  require_invariant(told == violations.size(), "a broken rule is missing in rules/meshplan.json");
  return judgements;
}

}  // namespace meshplan::planner
