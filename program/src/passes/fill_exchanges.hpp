#pragma once

#include "layer/sharded_layer.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// Orders a layer's operations so that what needs no exchange of experts runs while one is under
/// way: shared experts, and weight gradients.
/// @param program  that the layer will be of
void fill_exchanges(ShardedLayer& layer, const Program& program);

}  // namespace meshplan::program
