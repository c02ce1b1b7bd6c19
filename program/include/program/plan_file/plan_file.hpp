// A plan as a JSON file.
#pragma once

#include <string>
#include <string_view>

#include "program/plan/plan.hpp"

namespace meshplan::program {

/// @throws ConfigError naming the file, the path, the value and the rule
Plan parse_plan(std::string_view text, const std::string& file);
/// The same of a plan that may break rules of the runtime (program::check), which another stack may
/// not have. @throws ConfigError naming the file, the path, the value and the rule
Plan read_plan(std::string_view text, const std::string& file);
std::string to_json(const Plan& plan);
/// The JSON Schema of the plan file.
std::string plan_schema();

}  // namespace meshplan::program
