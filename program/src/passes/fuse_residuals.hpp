#pragma once

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// After fuse_activations(): sums of the residual stream become part of the product before them or
/// of the norm after them.
void fuse_residuals(ShardedLayer& layer);

}  // namespace meshplan::program
