#pragma once

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// After the passes that fuse: what a norm or an activation has just written is quantized without a
/// pass over memory for its largest number, which that operation keeps.
void keep_largest(ShardedLayer& layer);

}  // namespace meshplan::program
