// What a plan asks for that torchtitan has no words for.
#pragma once

#include "formats/text/refusals.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::planner::torchtitan {

void refuse_for_torchtitan(Refusals& refusals, const program::Plan& plan);

}  // namespace meshplan::planner::torchtitan
