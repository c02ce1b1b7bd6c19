#pragma once

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// After pass 3: activations that matrix products can end in become part of them, forward and
/// backward. Changes no number.
void fuse_activations(ShardedLayer& layer);

}  // namespace meshplan::program
