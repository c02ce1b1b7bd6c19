#include "rules/nearest_choice.hpp"

#include <algorithm>

namespace meshplan::planner {
namespace {

class Varied {
 public:
  Varied(const RuleSet& rules, const BoundRules& bound, std::size_t failed, FactList facts)
      : rules_(rules),
        bound_(bound),
        failed_(failed),
        fact_(rules.rules[failed].nearest),
        facts_(std::move(facts)) {
    const auto place = std::ranges::find(facts_.names, fact_);
    place_ = static_cast<std::size_t>(place - facts_.names.begin());
    for (std::size_t rule = 0; rule < bound_.size(); ++rule)
      before_.push_back(bound_.judge(rule, facts_.values));
  }

  std::optional<NearestChoice> run() {
    if (place_ >= facts_.values.size() || !facts_.values[place_]) return std::nullopt;
    const std::int64_t asked = *facts_.values[place_];
    std::optional<NearestChoice> second_best;
    for (std::int64_t distance = 1; distance <= kFarthestChoice; ++distance)
      for (const bool up : {false, true}) {
        std::int64_t value = 0;
        if (__builtin_add_overflow(asked, up ? distance : -distance, &value) || value < 0) continue;
        const auto choice = tried(value);
        if (choice && choice->breaks.empty()) return choice;
        if (choice && !second_best) second_best = choice;
      }
    return second_best;
  }

 private:
  /// Absent if the rules that ask for this fact do not hold.
  std::optional<NearestChoice> tried(std::int64_t value) {
    facts_.values[place_] = value;
    if (bound_.judge(failed_, facts_.values) != Verdict::Passed) return std::nullopt;
    NearestChoice choice{.fact = fact_, .value = value, .breaks = {}};
    for (std::size_t rule = 0; rule < bound_.size(); ++rule) {
      if (before_[rule] == Verdict::Undecidable) continue;
      const Rule& asked = rules_.rules[rule];
      if (asked.effect == Effect::Costs) continue;
      if (bound_.judge(rule, facts_.values) == Verdict::Passed) continue;
      if (before_[rule] == Verdict::Passed)
        choice.breaks.push_back(asked.id);
      else if (asked.nearest == fact_)
        return std::nullopt;
    }
    return choice;
  }

  const RuleSet& rules_;
  const BoundRules& bound_;
  std::size_t failed_;
  std::string fact_;
  FactList facts_;
  std::size_t place_ = 0;
  std::vector<Verdict> before_;
};

}  // namespace

std::optional<NearestChoice> nearest_choice(const RuleSet& rules, const BoundRules& bound,
                                            std::size_t failed, FactList facts) {
  return Varied(rules, bound, failed, std::move(facts)).run();
}

}  // namespace meshplan::planner
