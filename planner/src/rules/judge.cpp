#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/rules/rules.hpp"
#include "rules/bound_condition.hpp"
#include "rules/nearest_choice.hpp"
#include "rules/own_rules.hpp"

namespace meshplan::planner {
namespace {

FactList list_of(const Facts& facts) {
  FactList list;
  for (const auto& [name, value] : facts) {
    list.names.push_back(name);
    list.values.emplace_back(value);
  }
  return list;
}

class Judge {
 public:
  Judge(const RuleSet& rules, const Facts& facts, Unsaid unsaid)
      : rules_(rules),
        unsaid_(unsaid),
        facts_(list_of(facts)),
        vocabulary_(
            rules, [&facts](const std::string& name) { return facts.contains(name); }, unsaid),
        bound_(rules, facts_.names, unsaid) {}

  std::vector<Judgement> run() const {
    std::vector<Judgement> judgements;
    judgements.reserve(rules_.rules.size());
    for (std::size_t rule = 0; rule < rules_.rules.size(); ++rule)
      judgements.push_back(judged(rule));
    return judgements;
  }

 private:
  Judgement judged(std::size_t index) const {
    const Rule& rule = rules_.rules[index];
    Judgement judgement{.id = rule.id,
                        .name = rule.name,
                        .verdict = bound_.judge(index, facts_.values),
                        .effect = rule.effect,
                        .applies = true,
                        .message = {},
                        .source = rule.source,
                        .nearest = {}};
    judgement.applies = rule.when.empty() || !outcome_of(rule.when).is_false();
    switch (judgement.verdict) {
      case Verdict::Passed:
        judgement.message = judgement.applies
                                ? with_values(rule.requirement)
                                : fmt::format("only where {}", with_values(rule.when));
        break;
      case Verdict::Undecidable:
        judgement.message = rule.requirement.empty() ? rule.undecidable : what_is_missing(rule);
        break;
      case Verdict::Failed:
        judgement.nearest = nearest_of(index);
        judgement.message = what_fails(rule, judgement.nearest);
        break;
    }
    return judgement;
  }

  Outcome outcome_of(std::string_view text) const {
    return evaluate(with_places(vocabulary_.parse(text), facts_.names), facts_.values);
  }

  /// A setting that nobody gave is varied from the stack's own value.
  std::optional<NearestChoice> nearest_of(std::size_t index) const {
    const std::string& fact = rules_.rules[index].nearest;
    if (fact.empty()) return std::nullopt;
    if (std::ranges::find(facts_.names, fact) != facts_.names.end())
      return nearest_choice(rules_, bound_, index, facts_);
    const Outcome value = outcome_of(fact);
    if (!value.known()) return std::nullopt;
    FactList facts = facts_;
    facts.names.push_back(fact);
    facts.values.emplace_back(value.value);
    return nearest_choice(rules_, BoundRules(rules_, facts.names, unsaid_), index,
                          std::move(facts));
  }

  std::string what_fails(const Rule& rule, const std::optional<NearestChoice>& nearest) const {
    const bool refused = rule.effect == Effect::Refused;
    std::string message = fmt::format("{} {} hold: {}", with_values(rule.requirement),
                                      refused ? "must" : "does not", rule.reason);
    if (nearest) {
      message += fmt::format("; nearest {}: {}", nearest->fact, nearest->value);
      if (!nearest->breaks.empty())
        message += fmt::format(" (which breaks {})", fmt::join(nearest->breaks, ", "));
    } else if (!rule.nearest.empty()) {
      message += fmt::format("; no {} near it does", rule.nearest);
    }
    return message;
  }

  std::string what_is_missing(const Rule& rule) const {
    const Expression condition = vocabulary_.parse(condition_of(rule));
    std::vector<std::string> missing;
    for (const std::string& name : condition.names)
      if (std::ranges::find(facts_.names, name) == facts_.names.end()) missing.push_back(name);
    if (!missing.empty())
      return fmt::format("not known: {}; {} must hold: {}", fmt::join(missing, ", "),
                         with_values(rule.requirement), rule.reason);
    return fmt::format("{} divides by zero or leaves 64 bits", with_values(rule.requirement));
  }

  /// "heads(64) % tp(6) == 0"
  std::string with_values(const std::string& text) const {
    const Expression expression = vocabulary_.parse(text);
    std::string told;
    std::size_t begin = 0;
    for (const Mention& mention : expression.mentions) {
      const Outcome outcome = outcome_of(mention.name);
      told += text.substr(begin, mention.end - begin);
      told += outcome.known() ? fmt::format("({})", outcome.value) : "(?)";
      begin = mention.end;
    }
    return told + text.substr(begin);
  }

  const RuleSet& rules_;
  Unsaid unsaid_;
  FactList facts_;
  Vocabulary vocabulary_;
  BoundRules bound_;
};

}  // namespace

std::vector<Judgement> judge(const RuleSet& rules, const Facts& facts, Unsaid unsaid) {
  return Judge(rules, facts, unsaid).run();
}

std::vector<Judgement> judge(const RuleSet& rules, const program::Plan& plan, const Facts& beside) {
  if (rules.target == kOwnTarget) return judge_own(rules, plan);
  Facts facts = facts_of(plan);
  for (const auto& [name, value] : beside) facts[name] = value;
  return judge(rules, facts);
}

}  // namespace meshplan::planner
