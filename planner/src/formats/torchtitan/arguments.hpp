// What torchtitan is told beside its configuration: "--training.seq_len 4096".
#pragma once

#include <string_view>

#include "core/json_fields.hpp"

namespace meshplan::planner::torchtitan {

/// Puts "--section.key value" and "--section.key=value" into a configuration; without a value the
/// key is true. '-' and '_' are the same. @throws ConfigError for what is no such argument
void apply_arguments(Json& tree, std::string_view arguments);

}  // namespace meshplan::planner::torchtitan
