// Which sets of recomputed modules differ for a model.
#pragma once

#include <vector>

#include "models/model_spec.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::planner {

/// The choices in their order. Modules that the model lacks, or that others of a set contain, are
/// left out of it, and so are sets that recompute nothing, or the same as one before.
std::vector<program::Recompute> different_recompute(const models::ModelSpec& model,
                                                    const std::vector<program::Recompute>& choices);

}  // namespace meshplan::planner
