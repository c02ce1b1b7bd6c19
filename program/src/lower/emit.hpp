#pragma once

#include <vector>

#include "program/plan/lowering_profile.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// Appends the operations of program.tasks, with the gradient buckets between them.
/// @param merged  merged_tasks(), or empty: none
void emit_tasks(Program& program, Pass pass, const LoweringProfile& profile,
                const std::vector<bool>& merged);

}  // namespace meshplan::program
