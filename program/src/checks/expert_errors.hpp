// Rules of experts and of how tokens travel to them.
#pragma once

#include <string>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::program {

/// A message for each rule of experts that the plan breaks; its degrees are at least 1.
std::vector<std::string> expert_errors(const Plan& plan);

}  // namespace meshplan::program
