// The largest steps that are planned and run (core/limits.hpp).
#pragma once

#include <vector>

#include "program/plan.hpp"

namespace meshplan::program {

/// What of a plan's step could be neither counted in 64 bits nor ordered in seconds.
/// @param plan  with degrees and sizes of at least 1
std::vector<Violation> beyond_limits(const Plan& plan);

/// @throws ConfigError if programs with so many layers ("of a stage") would have too many operations
void require_listable(const Plan& plan, int layers, std::string_view which);

}  // namespace meshplan::program
