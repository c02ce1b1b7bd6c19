#pragma once

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// After fuse_residuals(): rotations become part of the norms of heads before them.
void fuse_rotations(ShardedLayer& layer);

}  // namespace meshplan::program
