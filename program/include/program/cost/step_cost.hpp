// Work at the end of a step, from the plan alone. See cost.hpp.
#pragma once

#include <cstdint>
#include <string>

#include "program/cost/cost.hpp"

namespace meshplan::program {

/// Cost and signature of work on flat ranges, for which no instance is needed.
OperationCost step_cost(const Plan& plan, const StepOp& step);
/// Does it move what is offloaded?
bool copies_to_or_from_host(StepWork work);
/// Bytes that a rank moves so.
std::int64_t copied_bytes(const Plan& plan, const StepOp& step);
std::string step_signature(const Plan& plan, const StepOp& step);

}  // namespace meshplan::program
