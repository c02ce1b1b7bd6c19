#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "core/embedded_file.hpp"
#include "core/json_fields.hpp"
#include "planner/rules/rules.hpp"
#include "rules/vocabulary.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/release.hpp"

namespace meshplan {

template <>
struct EnumNames<planner::Effect> {
  static constexpr std::array<std::pair<planner::Effect, std::string_view>, 2> value = {
      {{planner::Effect::Refused, "refused"}, {planner::Effect::Costs, "costs"}}};
};

}  // namespace meshplan

namespace meshplan::planner {

std::span<const EmbeddedFile> rule_presets();

template <class Visitor>
void fields(Visitor& v, Rule& r) {
  v.required("id", r.id, "stable, short");
  v.required("name", r.name, "what it is about");
  v.optional("when", r.when, "a condition: it applies only then");
  v.optional("requires", r.requirement, "a condition that must hold");
  v.optional("nearest", r.nearest, "the fact that a user would change");
  v.required("reason", r.reason, "why, in words");
  v.required("source", r.source, "file:line");
  v.optional("effect", r.effect, "refused, or costs: it starts, but pays or leaves something out");
  v.optional("undecidable", r.undecidable,
             "why no fact tells, where it applies; instead of requires");
}

template <class Visitor>
void fields(Visitor& v, Setting& s) {
  v.required("name", s.name, "that conditions mention");
  v.optional("value", s.value, "where nobody says: an expression; empty = not known then");
  v.required("meaning", s.meaning, "and the stack's own word");
}

template <class Visitor>
void fields(Visitor& v, Term& t) {
  v.required("name", t.name, "that conditions mention");
  v.required("value", t.value, "an expression");
}

template <class Visitor>
void fields(Visitor& v, RuleSet& s) {
  v.required("target", s.target, "the file's name");
  v.required("stack", s.stack, "what its users call it");
  v.required("commit", s.commit, "repository and commit that sources refer to");
  v.required("software", s.software, "profile that prices what it runs");
  v.optional("settings", s.settings, "what the stack can be told beyond a plan");
  v.optional("terms", s.terms, "parts that several rules share");
  v.required("rules", s.rules, "in the order in which they are told");
}

namespace {

/// Names that conditions of the set may mention.
class KnownNames {
 public:
  explicit KnownNames(const RuleSet& set) {
    for (const FactMeaning& fact : plan_facts()) names_.push_back(fact.name);
    for (const Setting& setting : set.settings) names_.push_back(setting.name);
    for (const Term& term : set.terms) names_.push_back(term.name);
  }
  void require(const std::string& name) const {
    if (std::ranges::find(names_, name) == names_.end())
      throw ConfigError(unknown_name_message("name", name, names_));
  }

 private:
  std::vector<std::string> names_;
};

/// One part of the file with the place that its errors name.
class Part {
 public:
  Part(const std::string& file, const Vocabulary& vocabulary, const KnownNames& known)
      : file_(file), vocabulary_(vocabulary), known_(known) {}

  void check(std::string_view place, const std::string& text, bool is_condition) const {
    named(place, [&] {
      const Expression parsed = vocabulary_.parse(text);
      for (const Mention& mention : parsed.mentions) known_.require(mention.name);
      if (is_condition && !parsed.is_condition)
        throw ConfigError(fmt::format("'{}': expected a condition, for example a % b == 0", text));
    });
  }
  void check_name(std::string_view place, const std::string& name) const {
    named(place, [&] {
      if (!is_name(name)) throw ConfigError(fmt::format("'{}' is no name", name));
    });
  }
  void check_fact(std::string_view place, const std::string& name) const {
    named(place, [&] { known_.require(name); });
  }
  [[noreturn]] void fail(std::string_view place, std::string_view message) const {
    throw ConfigError(fmt::format("{}: {}: {}", file_, place, message));
  }

 private:
  template <class Body>
  void named(std::string_view place, Body body) const {
    try {
      body();
    } catch (const ConfigError& error) {
      fail(place, error.what());
    }
  }

  const std::string& file_;
  const Vocabulary& vocabulary_;
  const KnownNames& known_;
};

void check_rule(const Rule& rule, bool is_own, const Part& part) {
  const auto place = [&](const char* key) { return fmt::format("rule {}: {}", rule.id, key); };
  if (is_own) return;  // program::check judges
  if (rule.requirement.empty() == rule.undecidable.empty())
    part.fail(place("requires"), "a rule has either this or 'undecidable'");
  if (!rule.when.empty()) part.check(place("when"), rule.when, /*is_condition=*/true);
  if (!rule.requirement.empty())
    part.check(place("requires"), rule.requirement, /*is_condition=*/true);
  if (!rule.nearest.empty()) part.check_fact(place("nearest"), rule.nearest);
}

void check_rules(const RuleSet& set, const std::string& file) {
  const Vocabulary vocabulary(
      set, [](const std::string&) { return false; }, Unsaid::AsStackHasIt);
  const KnownNames known(set);
  const Part part(file, vocabulary, known);
  for (const Setting& setting : set.settings) {
    const std::string place = fmt::format("setting {}", setting.name);
    part.check_name(place, setting.name);
    if (!setting.value.empty()) part.check(place, setting.value, /*is_condition=*/false);
  }
  for (const Term& term : set.terms) {
    const std::string place = fmt::format("term {}", term.name);
    part.check_name(place, term.name);
    part.check(place, term.value, /*is_condition=*/false);
  }
  std::set<std::string> ids;
  for (const Rule& rule : set.rules) {
    if (!ids.insert(rule.id).second)
      part.fail(fmt::format("rule {}", rule.id), "there is another rule with this id");
    check_rule(rule, set.target == kOwnTarget, part);
  }
}

const std::map<std::string, RuleSet, std::less<>>& all_rule_sets() {
  static const auto kSets = [] {
    std::map<std::string, RuleSet, std::less<>> parsed;
    for (const EmbeddedFile& file : rule_presets())
      parsed.emplace(file.name, parse_rules(file.text, fmt::format("{}.json", file.name)));
    return parsed;
  }();
  return kSets;
}

/// Software whose runs are priced, and whose rules nobody wrote down.
const std::map<std::string, RuleSet, std::less<>>& sets_without_rules() {
  static const auto kSets = [] {
    std::map<std::string, RuleSet, std::less<>> none;
    for (const std::string& software : sim::execution_profile_names())
      if (!target_of(software))
        none.emplace(software,
                     RuleSet{.target = software, .stack = software, .software = software});
    return none;
  }();
  return kSets;
}

}  // namespace

RuleSet parse_rules(std::string_view text, const std::string& file) {
  auto set = read_json<RuleSet>(text, file);
  check_rules(set, file);
  return set;
}

std::vector<std::string> rule_targets() {
  std::vector<std::string> targets;
  for (const EmbeddedFile& file : rule_presets()) targets.emplace_back(file.name);
  std::ranges::sort(targets, {},
                    [](const std::string& name) { return std::pair(name != kOwnTarget, name); });
  return targets;
}

std::optional<std::string> target_of(std::string_view software) {
  const std::string name = sim::parse_software(software).name;
  for (const std::string& target : rule_targets())
    if (rules_for(target).software == name) return target;
  return std::nullopt;
}

const RuleSet& rules_for(std::string_view target) {
  auto found = all_rule_sets().find(target);
  if (found == all_rule_sets().end())
    found = std::ranges::find(all_rule_sets(), sim::with_stack_name(target),
                              [](const auto& rules) { return rules.second.software; });
  if (found != all_rule_sets().end()) return found->second;
  if (const auto none = sets_without_rules().find(target); none != sets_without_rules().end())
    return none->second;
  throw ConfigError(unknown_name_message("target", target, rule_targets()));
}

}  // namespace meshplan::planner
