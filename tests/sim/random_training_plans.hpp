// Random plans with everything that changes what is computed or where it lies, for what must hold
// of any program and any run.
#pragma once

#include <vector>

#include "program/plan/plan.hpp"
#include "support/random.hpp"

namespace meshplan::sim {

/// random_plan() (random_plans.hpp) and what no estimate depends on: every family of models with a
/// preset, patterns of frozen parameters, any set of recomputed modules, activations and weights in
/// host memory, compressed gradients, other orders of ranks, a progress thread. Without violations.
/// @param precisions  that the plan trains in, one of them
program::Plan random_training_plan(testing::Random& random,
                                   const std::vector<program::Precision>& precisions = {
                                       program::Precision::BF16});

}  // namespace meshplan::sim
