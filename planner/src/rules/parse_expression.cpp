#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>

#include "core/error.hpp"
#include "rules/expression.hpp"

namespace meshplan::planner {
namespace {

constexpr int kDeepestNesting = 64;

bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// What a part of an expression gives.
enum class Kind {
  Number,     // arithmetic
  Condition,  // a comparison or a logical word
  Either,     // a name: a size, or a flag; 0 and 1
};

struct Comparison {
  std::string_view symbol;
  Instruction instruction;
};
// Longer symbols first.
constexpr std::array<Comparison, 6> kComparisons = {{{"==", Instruction::Equal},
                                                     {"!=", Instruction::NotEqual},
                                                     {"<=", Instruction::LessOrEqual},
                                                     {">=", Instruction::GreaterOrEqual},
                                                     {"<", Instruction::Less},
                                                     {">", Instruction::Greater}}};

struct Function {
  std::string_view name;
  Instruction instruction;
  int arguments;
};
constexpr std::array<Function, 4> kFunctions = {{{"min", Instruction::Minimum, 2},
                                                 {"max", Instruction::Maximum, 2},
                                                 {"ceil_div", Instruction::CeilDivide, 2},
                                                 {"if", Instruction::Choose, 3}}};
constexpr std::array<std::string_view, 4> kWords = {"and", "or", "not", "implies"};

std::size_t pushed(Instruction instruction) {
  switch (instruction) {
    case Instruction::SkipIfFalse:
    case Instruction::SkipIfTrue:
      return 0;
    default:
      return 1;
  }
}

std::size_t popped(Instruction instruction) {
  switch (instruction) {
    case Instruction::Number:
    case Instruction::Name:
    case Instruction::MissingName:
    case Instruction::SkipIfFalse:
    case Instruction::SkipIfTrue:
      return 0;
    case Instruction::Negate:
    case Instruction::Not:
      return 1;
    case Instruction::Choose:
      return 3;
    default:
      return 2;
  }
}

class Parser {
 public:
  Parser(std::string_view text, const FindTerm& terms) : text_(text), terms_(terms) {
    made_.text = std::string(text);
  }

  Expression run() {
    const Kind kind = implication();
    skip_blanks();
    if (place_ < text_.size()) fail("the end, or an operator");
    made_.is_condition = kind != Kind::Number;
    check_stack();
    return std::move(made_);
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const { fail_at(place_, expected); }
  [[noreturn]] void fail_at(std::size_t place, std::string_view expected) const {
    const std::string_view rest = text_.substr(std::min(place, text_.size()));
    throw ConfigError(fmt::format(
        "'{}': column {}: expected {}, got {}", text_, place + 1, expected,
        rest.empty() ? std::string("the end") : fmt::format("'{}'", rest.substr(0, 12))));
  }

  void skip_blanks() {
    while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\n')) ++place_;
  }

  std::string_view peek_name() {
    skip_blanks();
    std::size_t end = place_;
    if (end < text_.size() && begins_name(text_[end]))
      while (end < text_.size() && (begins_name(text_[end]) || is_digit(text_[end]))) ++end;
    return text_.substr(place_, end - place_);
  }
  bool take_word(std::string_view word) {
    if (peek_name() != word) return false;
    place_ += word.size();
    return true;
  }
  bool take(std::string_view symbol) {
    skip_blanks();
    if (!text_.substr(place_).starts_with(symbol)) return false;
    place_ += symbol.size();
    return true;
  }
  void expect(std::string_view symbol) {
    if (!take(symbol)) fail(fmt::format("'{}'", symbol));
  }

  void emit(Instruction instruction, std::int64_t operand = 0) {
    made_.steps.push_back({instruction, operand});
  }
  /// The end of a jump that was emitted at `from`.
  void land(std::size_t from) {
    made_.steps[from].operand = static_cast<std::int64_t>(made_.steps.size());
  }

  void require_condition(Kind kind, std::size_t place) const {
    if (kind == Kind::Number) fail_at(place, "a condition, for example a % b == 0");
  }

  template <class Operand>
  Kind checked_condition(Operand operand) {
    skip_blanks();
    const std::size_t place = place_;
    const Kind kind = operand();
    require_condition(kind, place);
    return Kind::Condition;
  }

  /// operand (word operand)*; the right side is skipped where the left one decides.
  template <class Operand>
  Kind chain(std::string_view word, Instruction skip, Instruction join, Operand operand) {
    skip_blanks();
    const std::size_t place = place_;
    Kind kind = operand();
    while (take_word(word)) {
      require_condition(kind, place);
      const std::size_t jump = made_.steps.size();
      emit(skip);
      kind = checked_condition(operand);
      emit(join);
      land(jump);
    }
    return kind;
  }

  Kind implication() {
    const Nested nested(*this);
    skip_blanks();
    const std::size_t place = place_;
    const Kind kind = chain("or", Instruction::SkipIfTrue, Instruction::Or, [&] { return all(); });
    if (!take_word("implies")) return kind;
    require_condition(kind, place);
    emit(Instruction::Not);
    const std::size_t jump = made_.steps.size();
    emit(Instruction::SkipIfTrue);
    checked_condition([&] { return implication(); });
    emit(Instruction::Or);
    land(jump);
    return Kind::Condition;
  }

  Kind all() {
    return chain("and", Instruction::SkipIfFalse, Instruction::And, [&] { return negation(); });
  }

  Kind negation() {
    if (!take_word("not")) return comparison();
    const Nested nested(*this);
    checked_condition([&] { return negation(); });
    emit(Instruction::Not);
    return Kind::Condition;
  }

  Kind comparison() {
    const Kind kind = sum();
    for (const Comparison& known : kComparisons) {
      if (!take(known.symbol)) continue;
      sum();
      emit(known.instruction);
      return Kind::Condition;
    }
    return kind;
  }

  Kind sum() {
    Kind kind = product();
    while (true) {
      const bool plus = take("+");
      if (!plus && !take("-")) return kind;
      product();
      emit(plus ? Instruction::Add : Instruction::Subtract);
      kind = Kind::Number;
    }
  }

  Kind product() {
    Kind kind = factor();
    while (true) {
      Instruction instruction = Instruction::Multiply;
      if (take("/"))
        instruction = Instruction::Divide;
      else if (take("%"))
        instruction = Instruction::Remainder;
      else if (!take("*"))
        return kind;
      factor();
      emit(instruction);
      kind = Kind::Number;
    }
  }

  Kind factor() {
    const Nested nested(*this);
    if (take("-")) {
      factor();
      emit(Instruction::Negate);
      return Kind::Number;
    }
    if (take("(")) {
      const Kind kind = implication();
      expect(")");
      return kind;
    }
    skip_blanks();
    if (place_ < text_.size() && is_digit(text_[place_])) return number();
    return name();
  }

  Kind number() {
    std::size_t end = place_;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(text_.data() + place_, text_.data() + end, value);
    if (error != std::errc() || stop != text_.data() + end) fail("a whole number of 64 bits");
    place_ = end;
    emit(Instruction::Number, value);
    return value <= 1 ? Kind::Either : Kind::Number;
  }

  Kind name() {
    const std::string found(peek_name());
    if (found.empty() || std::ranges::find(kWords, found) != kWords.end())
      fail("a name, a number or '('");
    place_ += found.size();
    for (const Function& function : kFunctions)
      if (function.name == found) return call(function);
    made_.mentions.push_back({found, place_});
    if (const Expression* term = terms_ ? terms_(found) : nullptr) return copy(*term);
    emit(Instruction::Name, index_of(found));
    return Kind::Either;
  }

  Kind call(const Function& function) {
    expect("(");
    const bool chooses = function.instruction == Instruction::Choose;
    Kind kind = chooses ? Kind::Condition : Kind::Number;
    for (int i = 0; i < function.arguments; ++i) {
      if (i > 0) expect(",");
      if (i == 0 && chooses)
        checked_condition([&] { return implication(); });
      else if (implication() == Kind::Number)
        kind = Kind::Number;
    }
    expect(")");
    emit(function.instruction);
    return kind;
  }

  std::int64_t index_of(const std::string& name) {
    auto place = std::ranges::find(made_.names, name);
    if (place == made_.names.end()) place = made_.names.insert(place, name);
    return place - made_.names.begin();
  }

  Kind copy(const Expression& term) {
    const auto begin = static_cast<std::int64_t>(made_.steps.size());
    for (Step step : term.steps) {
      if (step.instruction == Instruction::Name)
        step.operand = index_of(term.names[static_cast<std::size_t>(step.operand)]);
      if (step.instruction == Instruction::SkipIfFalse ||
          step.instruction == Instruction::SkipIfTrue)
        step.operand += begin;
      made_.steps.push_back(step);
    }
    return term.is_condition ? Kind::Condition : Kind::Number;
  }

  /// Evaluation has a stack of a fixed size.
  void check_stack() const {
    std::size_t size = 0;
    for (const Step& step : made_.steps) {
      size = size + pushed(step.instruction) - popped(step.instruction);
      if (size > kMostOnStack)
        throw ConfigError(fmt::format(
            "'{}': more than {} values at once; name a part of it as a term", text_, kMostOnStack));
    }
  }

  /// Counts how deep the parser is in its own calls.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) {
      if (++parser.nesting_ > kDeepestNesting) parser.fail("fewer parentheses");
    }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  std::string_view text_;
  const FindTerm& terms_;
  Expression made_;
  std::size_t place_ = 0;
  int nesting_ = 0;
};

}  // namespace

Expression parse_expression(std::string_view text, const FindTerm& terms) {
  return Parser(text, terms).run();
}

bool is_name(std::string_view text) {
  if (text.empty() || !begins_name(text.front())) return false;
  for (const char c : text)
    if (!begins_name(c) && !is_digit(c)) return false;
  for (const Function& function : kFunctions)
    if (function.name == text) return false;
  return std::ranges::find(kWords, text) == kWords.end();
}

}  // namespace meshplan::planner
