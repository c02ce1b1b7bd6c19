#include "python/arithmetic.hpp"

#include <cmath>

namespace meshplan::planner::python {
namespace {

using Whole = std::int64_t;

std::optional<Value> floor_division(Whole left, Whole right, bool remainder) {
  if (right == 0 || (left == INT64_MIN && right == -1)) return std::nullopt;
  Whole quotient = left / right;
  if (left % right != 0 && (left < 0) != (right < 0)) --quotient;  // Python rounds down
  return whole(remainder ? left - quotient * right : quotient);
}

std::optional<Value> whole_power(Whole base, Whole exponent) {
  if (exponent < 0) return real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  if (exponent > 64) return std::nullopt;
  Whole result = 1;
  for (Whole i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(result, base, &result)) return std::nullopt;
  return whole(result);
}

std::optional<Value> of_wholes(Whole left, const std::string& symbol, Whole right) {
  Whole result = 0;
  bool overflows = false;
  if (symbol == "+")
    overflows = __builtin_add_overflow(left, right, &result);
  else if (symbol == "-")
    overflows = __builtin_sub_overflow(left, right, &result);
  else if (symbol == "*")
    overflows = __builtin_mul_overflow(left, right, &result);
  else if (symbol == "//" || symbol == "%")
    return floor_division(left, right, symbol == "%");
  else if (symbol == "**")
    return whole_power(left, right);
  else if (symbol == "/" && right != 0)
    return real(static_cast<double>(left) / static_cast<double>(right));
  else
    return std::nullopt;
  return overflows ? std::nullopt : std::optional<Value>(whole(result));
}

}  // namespace

std::optional<Value> computed(const Value& left, const std::string& symbol, const Value& right) {
  if (!left.is_number() || !right.is_number()) return std::nullopt;
  std::optional<Value> result;
  if (left.is(ValueKind::Whole) && right.is(ValueKind::Whole)) {
    result = of_wholes(left.whole, symbol, right.whole);
  } else {
    const double a = left.number();
    const double b = right.number();
    double value = NAN;
    if (symbol == "+") value = a + b;
    if (symbol == "-") value = a - b;
    if (symbol == "*") value = a * b;
    if (symbol == "/") value = a / b;
    if (symbol == "//") value = std::floor(a / b);
    if (symbol == "**") value = std::pow(a, b);
    result = real(value);
  }
  if (result && result->is(ValueKind::Real) && !std::isfinite(result->real)) return std::nullopt;
  return result;
}

}  // namespace meshplan::planner::python
