// Conditions of rules: integer expressions over named facts, parsed once and evaluated as a list of
// instructions on a stack, in three-valued logic where facts are missing (docs/check/README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::planner {

/// What an expression comes to. Truth is 1 and falsehood 0; every number but 0 counts as true.
struct Outcome {
  enum class State : std::uint8_t {
    Known,
    Missing,    // a fact is not there
    Undefined,  // a division by zero, or a number beyond 64 bits
  };
  std::int64_t value = 0;
  State state = State::Known;

  bool known() const { return state == State::Known; }
  bool is_true() const { return known() && value != 0; }
  bool is_false() const { return known() && value == 0; }
  bool operator==(const Outcome&) const = default;
};

enum class Instruction : std::uint8_t {
  Number,       // pushes `operand`
  Name,         // pushes the fact that `operand` is the index of
  MissingName,  // pushes Missing: a name that nobody knows
  Negate,
  Not,
  Multiply,
  Divide,  // rounds towards zero
  Remainder,
  Add,
  Subtract,
  Less,
  LessOrEqual,
  Greater,
  GreaterOrEqual,
  Equal,
  NotEqual,
  Minimum,
  Maximum,
  CeilDivide,
  Choose,       // condition, value if true, value if false
  And,          // Kleene's: false wins, then what is not known
  Or,           // Kleene's: true wins
  SkipIfFalse,  // jumps to `operand`, leaving the top, if that is false
  SkipIfTrue,
};

struct Step {
  Instruction instruction = Instruction::Number;
  std::int64_t operand = 0;
};

/// A name in the text of an expression.
struct Mention {
  std::string name;
  std::size_t end = 0;  // of the name, in the text
};

/// The most values that lie on the stack at once; deeper expressions are refused.
constexpr std::size_t kMostOnStack = 64;

struct Expression {
  std::string text;
  std::vector<Step> steps;
  std::vector<std::string> names;  // that Name steps index: facts, in the order of first use
  std::vector<Mention> mentions;   // as the text has them: facts and terms
  bool is_condition = false;       // a comparison, a logical word, a name, or 0 and 1
};

/// What a name stands for, where it is no fact; null = it is one. What it points at lives as long
/// as the parsing.
using FindTerm = std::function<const Expression*(const std::string& name)>;

/// From loosest to tightest: `implies` (to the right), `or`, `and`, `not`, one comparison
/// (== != < <= > >=), + -, * / %, unary -; names, whole numbers, parentheses, min(a, b), max(a, b),
/// ceil_div(a, b), if(condition, a, b). Logical words take conditions, so that a forgotten
/// comparison is an error; a condition is a number (1 or 0) to everything else.
/// @param terms  names that stand for other expressions, which are copied in; empty = none
/// @throws ConfigError with the column and what was expected
Expression parse_expression(std::string_view text, const FindTerm& terms = {});

/// @param facts  by the index of the names; an index beyond them, and an absent value, is Missing
Outcome evaluate(std::span<const Step> steps, std::span<const std::optional<std::int64_t>> facts);

/// Is `text` a name that an expression can mention?
bool is_name(std::string_view text);

}  // namespace meshplan::planner
