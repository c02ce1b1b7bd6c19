#pragma once

#include "options/command_line.hpp"

namespace meshplan::cli {

void add_adjust_command(CommandLine& line);

}  // namespace meshplan::cli
