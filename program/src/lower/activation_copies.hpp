#pragma once

#include <vector>

#include "program/program.hpp"
#include "splice.hpp"

namespace meshplan::program {

/// Gives the work on offloaded layers its slots, and adds the copies of what these layers keep: to
/// the host behind a forward pass, and back in time for the backward one.
/// @param instances  of all tasks, in issue order
void add_activation_copies(Program& program, std::vector<OperationInstance>& instances,
                           std::vector<Addition>& additions);

}  // namespace meshplan::program
