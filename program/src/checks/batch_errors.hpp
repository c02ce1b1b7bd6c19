// Rules of how the global batch is divided over replicas.
#pragma once

#include <vector>

#include "program/checks/check.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::program {

/// The rules "batch" and "uneven-batch" that the plan breaks; its degrees are at least 1.
std::vector<Violation> batch_errors(const Plan& plan);

}  // namespace meshplan::program
