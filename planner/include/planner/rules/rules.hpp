// Validity rules of training stacks as data (planner/rules/*.json): does a stack start with these
// settings, and if not, what is the nearest choice that it takes? docs/check/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::planner {

/// What rules ask about, by name; flags are 0 and 1.
using Facts = std::map<std::string, std::int64_t>;

/// A name that a rule may mention.
struct FactMeaning {
  std::string name;
  std::string meaning;
};
/// What a plan tells, in a fixed order.
const std::vector<FactMeaning>& plan_facts();
/// Their values, in that order; absent where the plan's model has no such thing, or where the
/// number has more than 64 bits.
std::vector<std::optional<std::int64_t>> plan_fact_values(const program::Plan& plan);
Facts facts_of(const program::Plan& plan);

enum class Effect {
  Refused,  // the stack does not start, or trains something else
  Costs,    // it starts, and pays with time or memory, or leaves out what was asked for
};

/// Conditions are expressions over facts, settings and terms.
struct Rule {
  std::string id;           // "M4"
  std::string name;         // "heads"
  std::string when;         // it applies only then; empty = always
  std::string requirement;  // must hold; empty = not a question of numbers
  std::string nearest;      // the fact that a user would change; empty = none alone
  std::string reason;       // why, in words
  std::string source;       // "file:line" in the stack's repository
  Effect effect = Effect::Refused;
  std::string undecidable;  // why no fact tells, where it applies; then nothing is required
};

/// What a stack can be told beyond what a plan says.
struct Setting {
  std::string name;
  std::string value;    // where nobody says: an expression; empty = then it is not known
  std::string meaning;  // and the stack's own word for it
};

/// A part that several rules share: "dp" for "world / (tp * pp * cp)". It hides a fact of its name.
struct Term {
  std::string name;
  std::string value;
};

struct RuleSet {
  std::string target;    // "megatron-lm"
  std::string stack;     // "Megatron-LM"
  std::string commit;    // repository and commit that `source` refers to; empty for our own
  std::string software;  // profile of sim that prices what it runs
  std::vector<Setting> settings;
  std::vector<Term> terms;
  std::vector<Rule> rules;
};

/// Our own runtime, whose rules are program::check.
inline constexpr std::string_view kOwnTarget = "meshplan";

/// Sorted, our own first.
std::vector<std::string> rule_targets();
/// The first whose runs this profile of sim prices.
std::optional<std::string> target_of(std::string_view software);
/// Of a target; or of a profile of sim whose rules nobody wrote down: none.
/// @throws ConfigError for an unknown target, with the nearest known one
const RuleSet& rules_for(std::string_view target);
/// @throws ConfigError naming file, rule, column and what was expected
RuleSet parse_rules(std::string_view text, const std::string& file);

enum class Verdict { Passed, Failed, Undecidable };

/// The value of Rule::nearest that lies nearest and does.
struct NearestChoice {
  std::string fact;
  std::int64_t value = 0;
  std::vector<std::string> breaks;  // ids of rules that held and would not
  bool operator==(const NearestChoice&) const = default;
};

struct Judgement {
  std::string id;
  std::string name;
  Verdict verdict = Verdict::Passed;
  Effect effect = Effect::Refused;
  bool applies = true;  // false: what it is about is not asked for, so it passed
  std::string message;  // values, rule, reason and nearest valid choice
  std::string source;
  std::optional<NearestChoice> nearest;

  bool refuses() const { return verdict == Verdict::Failed && effect == Effect::Refused; }
};

/// Whether settings that nobody gave have the stack's own values.
enum class Unsaid { AsStackHasIt, Unknown };

/// Every rule, in the order of the file. Not for our own runtime, whose rules ask the plan.
std::vector<Judgement> judge(const RuleSet& rules, const Facts& facts,
                             Unsaid unsaid = Unsaid::AsStackHasIt);
/// The same of a plan, for any target. @param beside  facts that a file told besides; they replace
/// the plan's
std::vector<Judgement> judge(const RuleSet& rules, const program::Plan& plan,
                             const Facts& beside = {});

/// Rules bound to the places of a list of facts, for callers that ask about very many plans: no
/// name is looked up any more.
class BoundRules {
 public:
  /// @param facts  names; what the rules mention and these lack has the stack's own value
  BoundRules(const RuleSet& rules, std::span<const std::string> facts,
             Unsaid unsaid = Unsaid::AsStackHasIt);
  ~BoundRules();
  BoundRules(BoundRules&&) noexcept;
  BoundRules& operator=(BoundRules&&) noexcept;

  /// As many as the set has.
  std::size_t size() const;
  /// @param values  of the facts, in the order of their names
  Verdict judge(std::size_t rule, std::span<const std::optional<std::int64_t>> values) const;
  /// The first rule that refuses these values.
  std::optional<std::size_t> first_refusal(
      std::span<const std::optional<std::int64_t>> values) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace meshplan::planner
