#include <algorithm>
#include <fmt/format.h>

#include "planner/rules/rules.hpp"
#include "rules/bound_condition.hpp"

namespace meshplan::planner {

std::string condition_of(const Rule& rule) {
  if (rule.when.empty()) return rule.requirement;
  return fmt::format("({}) implies ({})", rule.when, rule.requirement);
}

std::vector<Step> with_places(const Expression& expression, std::span<const std::string> facts) {
  std::vector<Step> steps = expression.steps;
  for (Step& step : steps) {
    if (step.instruction != Instruction::Name) continue;
    const std::string& name = expression.names[static_cast<std::size_t>(step.operand)];
    const auto place = std::ranges::find(facts, name);
    if (place == facts.end())
      step = {Instruction::MissingName, 0};
    else
      step.operand = place - facts.begin();
  }
  return steps;
}

Verdict verdict_of(const Outcome& outcome) {
  if (!outcome.known()) return Verdict::Undecidable;
  return outcome.is_true() ? Verdict::Passed : Verdict::Failed;
}

struct BoundRules::State {
  struct Bound {
    std::vector<Step> steps;  // of what must hold; of an undecidable rule when it applies
    bool decidable = true;
    bool refuses = true;
  };
  std::vector<Bound> rules;
};

BoundRules::BoundRules(const RuleSet& rules, std::span<const std::string> facts, Unsaid unsaid)
    : state_(std::make_unique<State>()) {
  const Vocabulary vocabulary(
      rules, [&](const std::string& name) { return std::ranges::find(facts, name) != facts.end(); },
      unsaid);
  for (const Rule& rule : rules.rules) {
    State::Bound bound{.steps = {},
                       .decidable = !rule.requirement.empty(),
                       .refuses = rule.effect == Effect::Refused};
    const std::string condition = bound.decidable ? condition_of(rule) : rule.when;
    if (!condition.empty()) bound.steps = with_places(vocabulary.parse(condition), facts);
    state_->rules.push_back(std::move(bound));
  }
}
BoundRules::~BoundRules() = default;
BoundRules::BoundRules(BoundRules&&) noexcept = default;
BoundRules& BoundRules::operator=(BoundRules&&) noexcept = default;

std::size_t BoundRules::size() const {
  return state_->rules.size();
}

Verdict BoundRules::judge(std::size_t rule,
                          std::span<const std::optional<std::int64_t>> values) const {
  const State::Bound& bound = state_->rules[rule];
  const Outcome outcome = evaluate(bound.steps, values);
  if (bound.decidable) return verdict_of(outcome);
  return outcome.is_false() ? Verdict::Passed : Verdict::Undecidable;
}

std::optional<std::size_t> BoundRules::first_refusal(
    std::span<const std::optional<std::int64_t>> values) const {
  for (std::size_t rule = 0; rule < size(); ++rule)
    if (state_->rules[rule].refuses && judge(rule, values) == Verdict::Failed) return rule;
  return std::nullopt;
}

}  // namespace meshplan::planner
