#include "python/expression.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace meshplan::planner::python {
namespace {

using Whole = std::int64_t;

constexpr std::array<std::string_view, 7> kTerminators = {",", "=", ":", ";", ")", "]", "}"};

std::optional<Json> floor_division(Whole left, Whole right, bool remainder) {
  if (right == 0 || (left == INT64_MIN && right == -1)) return std::nullopt;
  Whole quotient = left / right;
  if (left % right != 0 && (left < 0) != (right < 0)) --quotient;  // Python rounds down
  return remainder ? Json(left - quotient * right) : Json(quotient);
}

std::optional<Json> whole_power(Whole base, Whole exponent) {
  if (exponent < 0 || exponent > 64) return std::nullopt;
  Whole result = 1;
  for (Whole i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(result, base, &result)) return std::nullopt;
  return result;
}

std::optional<Json> of_wholes(Whole left, const std::string& symbol, Whole right) {
  Whole result = 0;
  if (symbol == "+")
    return __builtin_add_overflow(left, right, &result) ? std::nullopt
                                                        : std::optional<Json>(result);
  if (symbol == "-")
    return __builtin_sub_overflow(left, right, &result) ? std::nullopt
                                                        : std::optional<Json>(result);
  if (symbol == "*")
    return __builtin_mul_overflow(left, right, &result) ? std::nullopt
                                                        : std::optional<Json>(result);
  if (symbol == "//" || symbol == "%") return floor_division(left, right, symbol == "%");
  if (symbol == "**") return whole_power(left, right);
  if (right == 0) return std::nullopt;
  return static_cast<double>(left) / static_cast<double>(right);
}

/// Absent: no number comes of it.
std::optional<Json> computed(const Json& left, const std::string& symbol, const Json& right) {
  if (!left.is_number() || !right.is_number()) return std::nullopt;
  if (left.is_number_integer() && right.is_number_integer())
    return of_wholes(left.get<Whole>(), symbol, right.get<Whole>());
  const auto a = left.get<double>();
  const auto b = right.get<double>();
  double result = NAN;
  if (symbol == "+") result = a + b;
  if (symbol == "-") result = a - b;
  if (symbol == "*") result = a * b;
  if (symbol == "/") result = a / b;
  if (symbol == "//") result = std::floor(a / b);
  if (symbol == "**") result = std::pow(a, b);
  return std::isfinite(result) ? std::optional<Json>(result) : std::nullopt;
}

}  // namespace

bool is_call(const Json& value) {
  return value.is_object() && value.contains(kCall);
}

bool is_unknown(const Json& value) {
  return value.is_object() && value.contains(kSource);
}

std::string call_name(const Json& value) {
  return is_call(value) ? value.at(kCall).get<std::string>() : std::string();
}

bool Expressions::ends_here() const {
  const Token& token = peek();
  return token.kind == TokenKind::End ||
         (token.kind == TokenKind::Symbol &&
          std::ranges::find(kTerminators, token.text) != kTerminators.end());
}

void Expressions::skip_rest() {
  int depth = 0;
  while (!at_end() && (depth > 0 || !ends_here())) {
    if (at_symbol("(") || at_symbol("[") || at_symbol("{")) ++depth;
    if (at_symbol(")") || at_symbol("]") || at_symbol("}")) --depth;
    step();
  }
}

std::vector<std::string> Expressions::dotted_name() {
  std::vector<std::string> path;
  while (peek().kind == TokenKind::Name) {
    path.push_back(peek().text);
    step();
    if (!at_symbol(".") || peek(1).kind != TokenKind::Name) break;
    step();
  }
  return path;
}

Json Expressions::value() {
  const std::size_t begin = place_;
  try {
    Json result = sum();
    if (ends_here()) return result;
  } catch (const NotUnderstood&) {  // told by its text instead
  }
  place_ = begin;
  if (peek().kind == TokenKind::Name && peek().text == "lambda") {
    while (!at_end() && !at_symbol(":")) step();  // its parameters have commas of their own
    step();
  }
  skip_rest();
  const std::size_t first = tokens_[begin].begin;
  const std::size_t last = place_ > begin ? tokens_[place_ - 1].end : first;
  return {{kSource, text_.substr(first, last - first)}};
}

Json Expressions::sum() {
  Json left = product();
  while (at_symbol("+") || at_symbol("-")) {
    const std::string symbol = peek().text;
    step();
    auto result = computed(left, symbol, product());
    if (!result) throw NotUnderstood();
    left = std::move(*result);
  }
  return left;
}

Json Expressions::product() {
  Json left = unary();
  while (at_symbol("*") || at_symbol("/") || at_symbol("//") || at_symbol("%")) {
    const std::string symbol = peek().text;
    step();
    auto result = computed(left, symbol, unary());
    if (!result) throw NotUnderstood();
    left = std::move(*result);
  }
  return left;
}

Json Expressions::unary() {
  bool negative = false;
  bool signed_number = false;
  for (; at_symbol("-") || at_symbol("+"); step()) {
    negative = negative != at_symbol("-");
    signed_number = true;
  }
  Json result = power();
  if (!signed_number) return result;
  auto number = computed(Json(0), negative ? "-" : "+", result);
  if (!number) throw NotUnderstood();
  return std::move(*number);
}

Json Expressions::power() {
  Json base = primary();
  if (!at_symbol("**")) return base;
  step();
  bool negative = false;
  for (; at_symbol("-"); step()) negative = !negative;
  Json exponent = primary();
  if (negative) {
    auto number = computed(Json(0), "-", exponent);
    if (!number) throw NotUnderstood();
    exponent = std::move(*number);
    if (exponent.is_number_integer() && base.is_number()) base = base.get<double>();
  }
  auto result = computed(base, "**", exponent);
  if (!result) throw NotUnderstood();
  return std::move(*result);
}

Json Expressions::primary() {
  Json result;
  const Token& token = peek();
  if (token.kind == TokenKind::Number) {
    result = number();
  } else if (token.kind == TokenKind::String) {
    result = string();
  } else if (token.kind == TokenKind::Name) {
    result = name();
  } else if (at_symbol("(")) {
    result = list(")");
  } else if (at_symbol("[")) {
    result = list("]");
  } else if (at_symbol("{")) {
    result = dict();
  } else {
    throw NotUnderstood();
  }
  if (at_symbol(".") || at_symbol("(") || at_symbol("[")) throw NotUnderstood();
  return result;
}

Json Expressions::number() {
  const std::string digits = peek().text;
  step();
  const char* const begin = digits.data();
  const char* const end = begin + digits.size();
  Whole whole = 0;
  if (const auto read = std::from_chars(begin, end, whole);
      read.ec == std::errc() && read.ptr == end)
    return whole;
  double number = 0;
  const auto read = std::from_chars(begin, end, number);
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(number)) throw NotUnderstood();
  return number;
}

Json Expressions::string() {
  std::string text;
  for (; peek().kind == TokenKind::String; step()) {
    if (!peek().is_literal) throw NotUnderstood();
    text += peek().text;
  }
  return text;
}

Json Expressions::name() {
  const std::vector<std::string> path = dotted_name();
  if (path.size() == 1) {
    if (path[0] == "True") return true;
    if (path[0] == "False") return false;
    if (path[0] == "None") return nullptr;
  }
  if (at_symbol("(")) return call(fmt::format("{}", fmt::join(path, ".")));
  if (auto known = lookup_(path)) return std::move(*known);
  throw NotUnderstood();
}

Json Expressions::call(const std::string& callee) {
  Json result = {{kCall, callee}};
  step();
  while (!at_symbol(")")) {
    if (at_end()) throw NotUnderstood();
    if (at_symbol("**") || at_symbol("*")) {
      step();
      Json unpacked = value();
      result[kUnpacked] = is_unknown(unpacked) ? unpacked.at(kSource) : Json("a mapping");
    } else if (peek().kind == TokenKind::Name && peek(1).kind == TokenKind::Symbol &&
               peek(1).text == "=") {
      const std::string key = peek().text;
      step();
      step();
      result[key] = value();
    } else {
      result[kArguments].push_back(value());
    }
    if (at_symbol(","))
      step();
    else if (!at_symbol(")"))
      throw NotUnderstood();
  }
  step();
  return result;
}

Json Expressions::list(std::string_view closing) {
  step();
  Json items = Json::array();
  bool comma = closing == "]";
  while (!at_symbol(closing)) {
    if (at_end()) throw NotUnderstood();
    items.push_back(value());
    if (is_unknown(items.back())) throw NotUnderstood();
    if (at_symbol(",")) {
      comma = true;
      step();
    } else if (!at_symbol(closing)) {
      throw NotUnderstood();
    }
  }
  step();
  // (1) is a number, (1,) and () are lists.
  return comma || items.empty() ? items : items[0];
}

Json Expressions::dict() {
  step();
  Json result = Json::object();
  while (!at_symbol("}")) {
    if (at_end()) throw NotUnderstood();
    const Json key = value();
    if (!key.is_string() || !at_symbol(":")) throw NotUnderstood();
    step();
    result[key.get<std::string>()] = value();
    if (at_symbol(","))
      step();
    else if (!at_symbol("}"))
      throw NotUnderstood();
  }
  step();
  return result;
}

}  // namespace meshplan::planner::python
