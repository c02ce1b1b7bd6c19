#pragma once

#include <optional>

#include "program/certificate/twin.hpp"

namespace meshplan::program {

/// The plan at small degrees and sizes, with every technique that these allow.
/// @param degrees  tp, cp, pp, dp, ep and etp; the rest follows from the plan
/// @returns nothing if the rules forbid it
std::optional<Plan> shrunk_plan(const Plan& plan, const ParallelConfig& degrees,
                                TwinPrecision precision);

/// Every set of degrees to choose from: along each axis 1, 2, and where the plan has more, 3 or 4;
/// at most kMostTwinRanks ranks. Fewest ranks first.
std::vector<ParallelConfig> twin_degrees(const Plan& plan);

}  // namespace meshplan::program
