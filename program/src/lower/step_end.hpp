#pragma once

#include "lower/place_parameters.hpp"
#include "program/plan/lowering_profile.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// Operations between the last backward task and the next step, and the load before the first task.
void append_load(Program& program);
void append_reduction(Program& program, int index);
void append_step_end(Program& program, const ParameterOrder& order, Pass pass);

}  // namespace meshplan::program
