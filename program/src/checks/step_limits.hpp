// The largest steps that are planned and run (core/limits.hpp).
#pragma once

#include <vector>

#include "program/checks/check.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// What of a plan's step could be neither counted in 64 bits nor ordered in seconds.
/// @param plan  with degrees and sizes of at least 1
std::vector<Violation> beyond_limits(const Plan& plan);

/// @param most  limits::kLayerRuns where their operations are listed, else kMergedLayerRuns
/// @throws ConfigError if programs with so many layers ("of a stage") would run more of them
void require_listable(const Plan& plan, int layers, std::string_view which, std::int64_t most);

/// Operations that the program's layers list in all of its tasks. @param merged  merged_tasks(), or
/// empty
std::int64_t listed_operations(const Program& program, const std::vector<bool>& merged);

/// @param before  of programs that are listed already. @returns with those of this program's layers
/// @throws ConfigError if they are too many
std::int64_t require_listable(const Program& program, std::int64_t before,
                              const std::vector<bool>& merged);

}  // namespace meshplan::program
