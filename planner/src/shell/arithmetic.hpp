// $(( ... )) over 64-bit integers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "shell/value.hpp"

namespace meshplan::planner::shell {

/// What a name stands for. @throws UnknownOperand where nobody can know
using NameValue = std::function<std::int64_t(const std::string& name)>;

/// An operand is not known; says which.
struct UnknownOperand {
  Unknown unknown;
};

/// + - * / % ** comparisons && || ! and ?:, as shells compute them.
/// @param expression  after its expansions; names may stand in it without '$'
/// @throws ConfigError for what is no expression, for a division by zero and for an overflow
std::int64_t arithmetic_value(std::string_view expression, const NameValue& value_of);

}  // namespace meshplan::planner::shell
