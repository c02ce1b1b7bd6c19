#pragma once

#include <string>

#include "program/cost/cost.hpp"

namespace meshplan::program {

OperationCost compression_cost(const Program& program, const StepOp& step);
std::string compression_signature(const Program& program, const StepOp& step);

}  // namespace meshplan::program
