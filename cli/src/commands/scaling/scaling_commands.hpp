// The subcommands that compare sizes and strategies.
#pragma once

#include "options/command_line.hpp"

namespace meshplan::cli {

void add_scale_command(CommandLine& line);
void add_strategies_command(CommandLine& line);

}  // namespace meshplan::cli
