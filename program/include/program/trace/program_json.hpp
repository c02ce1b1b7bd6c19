#pragma once

#include <string>

#include "program/program.hpp"

namespace meshplan::program {

/// For reading: what a rank of this stage does, in issue order, with waits, costs and memory.
/// Programs are lowered from plans, never parsed.
std::string to_json(const Program& program);

}  // namespace meshplan::program
