// Values of a configuration's fields as operands of flags.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fields.hpp"

namespace meshplan::planner::bridge {

/// "silu" of what is imported as F.silu, and of a text.
std::string last_word(const Json& value);

/// The operands of a flag; absent of what is not understood.
std::optional<std::vector<std::string>> operands_of(std::string_view flag, const Json& value);

/// For a message: "LoRA(dim=32, ...)", "'auto'", "f(x)".
std::string shown(const Json& value);

}  // namespace meshplan::planner::bridge
