// What is wrong with the programs of a plan, taken together: whether they match and end.
#pragma once

#include <string>
#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

/// Proves over all stages of a plan that every receive has its send in the same order, that members
/// of a group issue the same collectives in the same order, and that every operation reads what its
/// operands name (provenance.hpp).
/// @returns what is broken, in words; empty if nothing
std::vector<std::string> program_errors(const std::vector<Program>& programs);

}  // namespace meshplan::program
