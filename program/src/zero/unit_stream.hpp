#pragma once

#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

constexpr int kUnitSlots = 2;  // one in use, one on its way

/// ZeRO-2 and 3: puts what reduces and gathers units among the operations of the tasks, and gives
/// these their slots.
std::vector<OperationInstance> stream_units(Program& program,
                                            std::vector<OperationInstance> instances);
/// Elements of the unit that gathers most.
std::int64_t largest_unit(const Program& program);
/// Elements of the unit that reduces most: frozen weights have no gradients.
std::int64_t largest_trained_unit(const Program& program);

}  // namespace meshplan::program
