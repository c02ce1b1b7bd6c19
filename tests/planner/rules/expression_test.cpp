#include "rules/expression.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>

#include "core/error.hpp"
#include "support/random.hpp"

namespace meshplan::planner {
namespace {

using State = Outcome::State;
using Values = std::map<std::string, std::int64_t>;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

Outcome value_of(const std::string& text, const Values& values = {}, const FindTerm& terms = {}) {
  const Expression expression = parse_expression(text, terms);
  std::vector<std::optional<std::int64_t>> facts;
  for (const std::string& name : expression.names) {
    const auto value = values.find(name);
    facts.push_back(value == values.end() ? std::nullopt : std::optional(value->second));
  }
  return evaluate(expression.steps, facts);
}

std::int64_t number_of(const std::string& text, const Values& values = {}) {
  const Outcome outcome = value_of(text, values);
  REQUIRE(outcome.known());
  return outcome.value;
}

std::string message_of(const std::string& text) {
  try {
    parse_expression(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("Expressions compute as C++ does, with the usual precedence", "[planner][rules]") {
  CHECK(number_of("2 + 3 * 4") == 14);
  CHECK(number_of("(2 + 3) * 4") == 20);
  CHECK(number_of("7 - 2 - 1") == 4);
  CHECK(number_of("100 / 7 % 5") == 4);
  CHECK(number_of("-3 + 5") == 2);
  CHECK(number_of("2 * -3") == -6);
  CHECK(number_of("-7 / 2") == -3);
  CHECK(number_of("-7 % 2") == -1);
  CHECK(number_of("ceil_div(7, 2)") == 4);
  CHECK(number_of("ceil_div(8, 2)") == 4);
  CHECK(number_of("ceil_div(-7, 2)") == -3);
  CHECK(number_of("ceil_div(7, -2)") == -3);
  CHECK(number_of("ceil_div(-7, -2)") == 4);
  CHECK(number_of("min(3, 2) + max(3, 2)") == 5);
  CHECK(number_of("(3 > 2) + (2 >= 2) + (1 < 1) + (1 <= 0) + (5 != 5)") == 2);
  CHECK(number_of("if(a > 1, 10, 20)", {{"a", 2}}) == 10);
  CHECK(number_of("if(a > 1, 10, 20)", {{"a", 1}}) == 20);
}

TEST_CASE("Logical words bind less than comparisons", "[planner][rules]") {
  CHECK(number_of("1 == 1 and 2 == 3 or 4 == 4") == 1);
  CHECK(number_of("1 == 1 or 2 == 3 and 4 == 5") == 1);
  CHECK(number_of("not 1 == 2 and 1 == 1") == 1);
  CHECK(number_of("not (1 == 2 or 1 == 1)") == 0);
  CHECK(number_of("1 == 2 implies 1 == 3") == 1);
  CHECK(number_of("1 == 1 implies 1 == 3") == 0);
  // To the right: only a true condition of a true condition is asked.
  CHECK(number_of("1 == 1 implies 1 == 2 implies 1 == 3") == 1);
  CHECK(number_of("flag and not other", {{"flag", 5}, {"other", 0}}) == 1);
  CHECK(number_of("flag or other", {{"flag", 5}, {"other", 0}}) == 1);
}

TEST_CASE("Missing facts follow Kleene's tables", "[planner][rules]") {
  const auto text_of = [](int value) {
    return value == 0 ? "1 == 2" : value == 1 ? "1 == 1" : "missing == 1";
  };
  // 0, 1, 2 = not known; Kleene 1952, section 64.
  constexpr int kAnd[3][3] = {{0, 0, 0}, {0, 1, 2}, {0, 2, 2}};
  constexpr int kOr[3][3] = {{0, 1, 2}, {1, 1, 1}, {2, 1, 2}};
  constexpr int kImplies[3][3] = {{1, 1, 1}, {0, 1, 2}, {2, 1, 2}};
  const auto told = [](const Outcome& outcome) {
    return outcome.known() ? static_cast<int>(outcome.value) : 2;
  };
  for (int a = 0; a < 3; ++a) {
    CHECK(told(value_of(std::string("not ") + text_of(a))) == (a == 2 ? 2 : 1 - a));
    for (int b = 0; b < 3; ++b) {
      const auto joined = [&](const char* word) {
        return value_of(std::string(text_of(a)) + word + text_of(b));
      };
      CHECK(told(joined(" and ")) == kAnd[a][b]);
      CHECK(told(joined(" or ")) == kOr[a][b]);
      CHECK(told(joined(" implies ")) == kImplies[a][b]);
    }
  }
  CHECK(value_of("missing + 1").state == State::Missing);
  CHECK(value_of("0 * missing").state == State::Missing);
  CHECK(value_of("if(missing == 1, 3, 3)").value == 3);
  CHECK(value_of("if(missing == 1, 3, 4)").state == State::Missing);
  CHECK(value_of("if(1 == 1, 3, missing)").value == 3);
}

TEST_CASE("What has no value is neither true nor false", "[planner][rules]") {
  CHECK(value_of("1 / 0").state == State::Undefined);
  CHECK(value_of("1 % 0 == 0").state == State::Undefined);
  CHECK(value_of("ceil_div(1, 0)").state == State::Undefined);
  const Values values{{"a", kLargest}, {"b", std::numeric_limits<std::int64_t>::min()}};
  CHECK(value_of("a + 1", values).state == State::Undefined);
  CHECK(value_of("a * a", values).state == State::Undefined);
  CHECK(value_of("b - 1", values).state == State::Undefined);
  CHECK(value_of("-b", values).state == State::Undefined);
  CHECK(value_of("b / -1", values).state == State::Undefined);
  CHECK(value_of("b % -1", values).value == 0);
  // A fact that somebody could give counts more than a number that does not exist.
  CHECK(value_of("1 / 0 + missing").state == State::Missing);
  // The guard decides before the division is asked.
  CHECK(value_of("tp > 0 and 8 % tp == 0", {{"tp", 0}}).is_false());
  CHECK(value_of("8 % tp == 0 and tp > 0", {{"tp", 0}}).is_false());
}

TEST_CASE("Terms are copied in where they are mentioned", "[planner][rules]") {
  const Expression dp = parse_expression("world / (tp * pp)");
  const Expression flag = parse_expression("tp > 1 and (pp > 1 or world > 8)");
  const FindTerm terms = [&](const std::string& name) -> const Expression* {
    return name == "dp" ? &dp : name == "flag" ? &flag : nullptr;
  };
  const Values values{{"tp", 2}, {"pp", 1}, {"world", 16}, {"gbs", 24}};
  CHECK(value_of("gbs % dp == 0", values, terms).is_true());
  CHECK(value_of("pp == 2 or flag and dp == 8", values, terms).is_true());
  CHECK(value_of("not flag or dp == 7", values, terms).is_false());
  const Expression expression = parse_expression("gbs % dp == 0", terms);
  CHECK(expression.names == std::vector<std::string>{"gbs", "world", "tp", "pp"});
  REQUIRE(expression.mentions.size() == 2);
  CHECK(expression.mentions[1].name == "dp");
  CHECK(expression.text.substr(0, expression.mentions[1].end) == "gbs % dp");
}

TEST_CASE("Errors of expressions name the column and what was expected", "[planner][rules]") {
  CHECK(message_of("heads % == 0") ==
        "'heads % == 0': column 9: expected a name, a number or '(', got '== 0'");
  CHECK(message_of("(a + 1") == "'(a + 1': column 7: expected ')', got the end");
  CHECK(message_of("a == 1 b") ==
        "'a == 1 b': column 8: expected the end, or an operator, got 'b'");
  CHECK(message_of("a < b < c").find("column 7") != std::string::npos);
  CHECK(message_of("").find("expected a name, a number or '('") != std::string::npos);
  CHECK(message_of("min(1)").find("column 6: expected ','") != std::string::npos);
  CHECK(message_of("99999999999999999999").find("64 bits") != std::string::npos);
  CHECK(message_of("and == 1").find("column 1: expected a name") != std::string::npos);
  CHECK(message_of("a $ b").find("column 3") != std::string::npos);
  // A forgotten comparison.
  CHECK(message_of("a % 2 and b == 1").find("column 1: expected a condition") != std::string::npos);
  CHECK(message_of("a == 1 and b % 2").find("column 12: expected a condition") !=
        std::string::npos);
  CHECK(message_of("not a + 1").find("expected a condition") != std::string::npos);
  CHECK(message_of("if(a, 1, 2) implies b").find("expected a condition") != std::string::npos);
  CHECK_FALSE(parse_expression("heads % tp").is_condition);
  CHECK(parse_expression("heads % tp == 0").is_condition);
  CHECK(parse_expression("sp").is_condition);
  CHECK(parse_expression("if(a, b == 1, c)").is_condition);
}

TEST_CASE("Hostile expressions are refused, not recursed into", "[planner][rules]") {
  CHECK(message_of(std::string(100'000, '(')).find("fewer parentheses") != std::string::npos);
  CHECK(message_of(std::string(100'000, '-')).find("fewer parentheses") != std::string::npos);
  std::string nots;
  for (int i = 0; i < 100'000; ++i) nots += "not ";
  CHECK(message_of(nots).find("fewer parentheses") != std::string::npos);
  std::string sum = "1";
  for (int i = 0; i < 10'000; ++i) sum += " + 1";
  CHECK(number_of(sum) == 10'001);
  // 1 + (1 + (1 + ...: each waits on the stack.
  std::string deep;
  for (int i = 0; i < 60; ++i) deep += "max(1, max(2, 1 + (";
  CHECK_FALSE(message_of(deep).empty());
}

namespace {

/// A random expression, and what C++ makes of it.
struct Made {
  std::string text;
  std::int64_t value;
};

Made random_expression(testing::Random& random, int depth) {
  if (depth == 0) {
    constexpr int kValues[] = {0, 1, 2, 3, 7, 64};
    const int value = kValues[random.below(std::size(kValues))];
    return {std::to_string(value), value};
  }
  const Made a = random_expression(random, depth - 1);
  const Made b = random_expression(random, depth - 1);
  switch (random.below(7)) {
    case 0:
      return {"(" + a.text + " + " + b.text + ")", a.value + b.value};
    case 1:
      return {"(" + a.text + " - " + b.text + ")", a.value - b.value};
    case 2:
      return {"min(" + a.text + ", " + b.text + ")", std::min(a.value, b.value)};
    case 3:
      return {"(" + a.text + " == " + b.text + " or " + b.text + " < " + a.text + ")",
              a.value >= b.value};
    case 4:
      return {"(" + a.text + " > 1 and " + b.text + " > 1)", a.value > 1 && b.value > 1};
    case 5:
      return {"if(" + a.text + " != " + b.text + ", " + a.text + ", 5)",
              a.value != b.value ? a.value : 5};
    default:
      return {"(" + a.text + " % 3 * " + b.text + ")", a.value % 3 * b.value};
  }
}

}  // namespace

TEST_CASE("Random expressions come to what C++ makes of them", "[planner][rules]") {
  testing::Random random(20261125);
  for (int i = 0; i < 3000; ++i) {
    const Made made = random_expression(random, 1 + i % 4);
    INFO(made.text);
    CHECK(number_of(made.text) == made.value);
  }
}

}  // namespace meshplan::planner
