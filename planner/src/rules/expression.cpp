#include "rules/expression.hpp"

#include <array>
#include <limits>

#include "core/error.hpp"

namespace meshplan::planner {
namespace {

using State = Outcome::State;

Outcome known(std::int64_t value) {
  return {.value = value};
}

/// What is not known of two operands: a fact that somebody could give counts more.
Outcome unknown(const Outcome& a, const Outcome& b) {
  const bool missing = a.state == State::Missing || b.state == State::Missing;
  return {.state = missing ? State::Missing : State::Undefined};
}

constexpr Outcome kUndefined{.state = State::Undefined};

Outcome divide(std::int64_t a, std::int64_t b) {
  if (b == 0 || (a == std::numeric_limits<std::int64_t>::min() && b == -1)) return kUndefined;
  return known(a / b);
}

Outcome remainder(std::int64_t a, std::int64_t b) {
  if (b == 0) return kUndefined;
  return known(b == -1 ? 0 : a % b);
}

Outcome ceil_divide(std::int64_t a, std::int64_t b) {
  const Outcome quotient = divide(a, b);
  if (!quotient.known()) return quotient;
  const bool rounds_down = a % b != 0 && (a < 0) == (b < 0);
  return known(quotient.value + (rounds_down ? 1 : 0));
}

Outcome multiply(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? kUndefined : known(result);
}

Outcome add(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? kUndefined : known(result);
}

Outcome subtract(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_sub_overflow(a, b, &result) ? kUndefined : known(result);
}

Outcome apply(Instruction instruction, std::int64_t a, std::int64_t b) {
  switch (instruction) {
    case Instruction::Multiply:
      return multiply(a, b);
    case Instruction::Add:
      return add(a, b);
    case Instruction::Subtract:
      return subtract(a, b);
    case Instruction::Divide:
      return divide(a, b);
    case Instruction::Remainder:
      return remainder(a, b);
    case Instruction::CeilDivide:
      return ceil_divide(a, b);
    case Instruction::Less:
      return known(a < b);
    case Instruction::LessOrEqual:
      return known(a <= b);
    case Instruction::Greater:
      return known(a > b);
    case Instruction::GreaterOrEqual:
      return known(a >= b);
    case Instruction::Equal:
      return known(a == b);
    case Instruction::NotEqual:
      return known(a != b);
    case Instruction::Minimum:
      return known(a < b ? a : b);
    case Instruction::Maximum:
      return known(a < b ? b : a);
    default:
      throw InvariantError("no instruction of two numbers");
  }
}

Outcome both(const Outcome& a, const Outcome& b) {
  if (a.is_false() || b.is_false()) return known(0);
  return a.known() && b.known() ? known(1) : unknown(a, b);
}

Outcome either(const Outcome& a, const Outcome& b) {
  if (a.is_true() || b.is_true()) return known(1);
  return a.known() && b.known() ? known(0) : unknown(a, b);
}

Outcome choose(const Outcome& condition, const Outcome& yes, const Outcome& no) {
  if (condition.known()) return condition.value != 0 ? yes : no;
  return yes.known() && yes == no ? yes : unknown(condition, condition);
}

Outcome negated(const Outcome& operand) {
  return operand.known() ? subtract(0, operand.value) : operand;
}

Outcome fact_of(std::span<const std::optional<std::int64_t>> facts, std::int64_t index) {
  const auto place = static_cast<std::size_t>(index);
  if (place >= facts.size() || !facts[place]) return {.state = State::Missing};
  return known(*facts[place]);
}

}  // namespace

Outcome evaluate(std::span<const Step> steps, std::span<const std::optional<std::int64_t>> facts) {
  std::array<Outcome, kMostOnStack> stack;
  std::size_t size = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    switch (step.instruction) {
      case Instruction::Number:
        stack[size++] = known(step.operand);
        break;
      case Instruction::Name:
        stack[size++] = fact_of(facts, step.operand);
        break;
      case Instruction::MissingName:
        stack[size++] = {.state = State::Missing};
        break;
      case Instruction::Negate:
        stack[size - 1] = negated(stack[size - 1]);
        break;
      case Instruction::Not:
        if (stack[size - 1].known()) stack[size - 1] = known(stack[size - 1].value == 0);
        break;
      case Instruction::SkipIfFalse:
        if (stack[size - 1].is_false()) i = static_cast<std::size_t>(step.operand) - 1;
        break;
      case Instruction::SkipIfTrue:
        if (!stack[size - 1].is_true()) break;
        stack[size - 1] = known(1);
        i = static_cast<std::size_t>(step.operand) - 1;
        break;
      case Instruction::And:
        --size;
        stack[size - 1] = both(stack[size - 1], stack[size]);
        break;
      case Instruction::Or:
        --size;
        stack[size - 1] = either(stack[size - 1], stack[size]);
        break;
      case Instruction::Choose:
        size -= 2;
        stack[size - 1] = choose(stack[size - 1], stack[size], stack[size + 1]);
        break;
      default: {
        --size;
        const Outcome& a = stack[size - 1];
        const Outcome& b = stack[size];
        stack[size - 1] =
            a.known() && b.known() ? apply(step.instruction, a.value, b.value) : unknown(a, b);
      }
    }
  }
  return size == 0 ? kUndefined : stack[size - 1];
}

}  // namespace meshplan::planner
