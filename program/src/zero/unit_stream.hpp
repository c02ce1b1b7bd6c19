#pragma once

#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

constexpr int kUnitSlots = 2;  // one in use, one on its way

/// ZeRO-2 and 3: puts what reduces and gathers units among the operations of the tasks, and gives
/// these their slots.
std::vector<OperationInstance> stream_units(Program& program,
                                            std::vector<OperationInstance> instances);
/// The most that any unit has: Unit::elements, which are gathered, or Unit::trained_elements, which
/// are reduced, since frozen weights have no gradients.
std::int64_t largest_of_units(const Program& program, std::int64_t Unit::*elements);

}  // namespace meshplan::program
