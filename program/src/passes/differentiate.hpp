#pragma once

#include "layer/sharded_layer.hpp"
#include "program/plan/lowering_profile.hpp"

namespace meshplan::program {

/// Pass 2 and 3: appends the backward operations that lead to the gradient of a trained parameter
/// or of an input that needs one; values that they need are marked Saved, or computed again where
/// `recompute` says so. Forward-only programs skip it.
void differentiate(ShardedLayer& layer, const ShardContext& context,
                   const RecomputedPart& recompute, const LoweringProfile& profile);

}  // namespace meshplan::program
