#include "shell/arithmetic.hpp"

#include <array>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"
#include "core/line.hpp"
#include "shell/value.hpp"

namespace meshplan::planner::shell {
namespace {

constexpr int kMostLevels = 64;

struct BinaryOperator {
  std::string_view text;
  int precedence;
};
// Longer ones first where one begins another.
constexpr std::array kBinary = {
    BinaryOperator{"||", 1}, BinaryOperator{"&&", 2}, BinaryOperator{"==", 3},
    BinaryOperator{"!=", 3}, BinaryOperator{"<=", 4}, BinaryOperator{">=", 4},
    BinaryOperator{"<", 4},  BinaryOperator{">", 4},  BinaryOperator{"+", 5},
    BinaryOperator{"-", 5},  BinaryOperator{"**", 7}, BinaryOperator{"*", 6},
    BinaryOperator{"/", 6},  BinaryOperator{"%", 6}};

std::int64_t checked(bool overflowed, std::int64_t result, std::string_view operation) {
  if (overflowed) throw ConfigError(fmt::format("{} overflows 64 bits", operation));
  return result;
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) throw ConfigError("an exponent is negative");
  std::int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (std::int64_t i = 0; i < exponent; ++i) {  // at most 63 times before it overflows
    std::int64_t next = 0;
    const bool overflows = __builtin_mul_overflow(result, base, &next);
    result = checked(overflows, next, "**");
  }
  return result;
}

std::int64_t divided(std::string_view operation, std::int64_t left, std::int64_t right) {
  if (right == 0) throw ConfigError("it divides by zero");
  if (right == -1)  // the least integer has no positive counterpart
    return operation == "%" ? 0 : checked(left == INT64_MIN, left == INT64_MIN ? 0 : -left, "/");
  return operation == "%" ? left % right : left / right;
}

std::int64_t apply(std::string_view operation, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  bool overflows = false;
  if (operation == "+") overflows = __builtin_add_overflow(left, right, &result);
  if (operation == "-") overflows = __builtin_sub_overflow(left, right, &result);
  if (operation == "*") overflows = __builtin_mul_overflow(left, right, &result);
  if (operation == "+" || operation == "-" || operation == "*")
    return checked(overflows, result, operation);
  if (operation == "/" || operation == "%") return divided(operation, left, right);
  if (operation == "**") return power(left, right);
  if (operation == "==") return left == right;
  if (operation == "!=") return left != right;
  if (operation == "<=") return left <= right;
  if (operation == ">=") return left >= right;
  if (operation == "<") return left < right;
  if (operation == ">") return left > right;
  if (operation == "&&") return left != 0 && right != 0;
  return left != 0 || right != 0;
}

class ArithmeticParser {
 public:
  ArithmeticParser(std::string_view text, const NameValue& value_of)
      : text_(text), value_of_(value_of) {}

  std::int64_t run() {
    const std::int64_t value = ternary(0);
    skip_blanks();
    if (at_ < text_.size()) fail();
    return value;
  }

 private:
  [[noreturn]] void fail() const {
    throw ConfigError(fmt::format("'{}' is no arithmetic that is read here", short_line(text_)));
  }
  void skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  std::int64_t ternary(int level) {
    if (level > kMostLevels) fail();
    const std::int64_t condition = binary(1, level);
    if (!take("?")) return condition;
    const std::int64_t if_true = ternary(level + 1);
    if (!take(":")) fail();
    const std::int64_t if_false = ternary(level + 1);
    return condition != 0 ? if_true : if_false;
  }

  std::int64_t binary(int least, int level) {
    std::int64_t left = unary(level + 1);
    while (true) {
      skip_blanks();
      const BinaryOperator* found = nullptr;
      for (const BinaryOperator& each : kBinary)
        if (found == nullptr && text_.substr(at_).starts_with(each.text)) found = &each;
      if (found == nullptr || found->precedence < least) return left;
      at_ += found->text.size();
      // ** binds from right to left.
      const int next = found->text == "**" ? found->precedence : found->precedence + 1;
      left = apply(found->text, left, binary(next, level + 1));
    }
  }

  std::int64_t unary(int level) {
    if (level > kMostLevels) fail();
    if (take("!")) return unary(level + 1) == 0;
    if (take("-")) return apply("-", 0, unary(level + 1));
    if (take("+")) return unary(level + 1);
    if (take("(")) {
      const std::int64_t value = ternary(level + 1);
      if (!take(")")) fail();
      return value;
    }
    return operand();
  }

  std::int64_t operand() {
    skip_blanks();
    take("$");  // "$(($A*2))" after an expansion that left it as written
    const std::string_view name = leading_name(text_.substr(at_));
    if (!name.empty()) {
      at_ += name.size();
      return value_of_(std::string(name));
    }
    std::int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) throw ConfigError("a number exceeds 64 bits");
    if (error != std::errc()) fail();
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  std::string_view text_;
  const NameValue& value_of_;
  std::size_t at_ = 0;
};

}  // namespace

std::int64_t arithmetic_value(std::string_view expression, const NameValue& value_of) {
  return ArithmeticParser(expression, value_of).run();
}

}  // namespace meshplan::planner::shell
