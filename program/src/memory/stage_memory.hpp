// What a stage's program keeps where: the last pass of lowering before operations are listed.
#pragma once

#include "program/plan/lowering_profile.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// Rows and sequences of a micro-batch, as the program's plan has them.
void set_sizes(Program& program);
/// Planned values of the symbols, per micro-batch.
models::SymbolValues sizes_of(const Plan& plan);

/// Regions and what lies in Region::Saved when. @param schedule  of all stages
void plan_memory(Program& program, const Schedule& schedule, Pass pass);

}  // namespace meshplan::program
