#pragma once

#include <vector>

#include "sim/stacks/run_prediction.hpp"

namespace meshplan::sim {

/// Where the time of a corrected step goes: each term's seconds times its factor, then all in
/// proportion, so that they sum to the step.
/// @param factors  by RunTerm; those of the whole step are in `step_time_s`
RunBreakdown corrected(const RunBreakdown& before, const std::vector<double>& factors,
                       double step_time_s);

}  // namespace meshplan::sim
