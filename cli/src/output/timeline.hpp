// A step's timeline on standard output.
#pragma once

#include "output/terminal.hpp"
#include "program/trace/trace.hpp"

namespace meshplan::cli {

/// With colours where a terminal shows them. It holds no foreign text.
void print_timeline(const program::Trace& trace, const Terminal& terminal);

}  // namespace meshplan::cli
