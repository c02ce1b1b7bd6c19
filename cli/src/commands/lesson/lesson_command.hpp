// meshplan lesson: the classroom's lessons on the cores of this machine.
#pragma once

#include "options/command_line.hpp"

namespace meshplan::cli {

void add_lesson_command(CommandLine& line);

}  // namespace meshplan::cli
