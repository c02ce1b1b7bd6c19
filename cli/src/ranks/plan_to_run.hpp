// The plan of a command that runs it.
#pragma once

#include <string>

#include "program/plan/plan.hpp"

namespace meshplan::cli {

/// A plan that this project's runtime is to run. One of another stack loses its settings and its
/// prediction, which a line on standard error says.
/// @throws ConfigError if the file is no plan, or breaks a rule of ours
program::Plan plan_to_run(const std::string& file);

}  // namespace meshplan::cli
