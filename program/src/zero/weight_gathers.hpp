#pragma once

#include "program/program.hpp"

namespace meshplan::program {

/// ZeRO: puts the gathers of updated weights before the layers that need them.
void insert_weight_gathers(Program& program);

}  // namespace meshplan::program
