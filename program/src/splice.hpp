// Operations that are added to a program's list once the list is known.
#pragma once

#include <utility>
#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

/// An instance and the position before which it goes: that of an instance so far, or their number.
using Addition = std::pair<int, OperationInstance>;

/// Additions at one position keep their order. Works in place: of a long program a second list
/// would take as much memory as all that the simulator notes of it.
void splice(std::vector<OperationInstance>& instances, std::vector<Addition> additions);

}  // namespace meshplan::program
