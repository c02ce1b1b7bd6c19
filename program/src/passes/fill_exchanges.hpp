#pragma once

#include "layer/sharded_layer.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::program {

/// Orders a layer's operations so that what needs no exchange of experts runs while one is under
/// way: shared experts, and weight gradients.
void fill_exchanges(ShardedLayer& layer, const Plan& plan);

}  // namespace meshplan::program
