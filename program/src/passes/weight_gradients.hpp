#pragma once

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// After pass 3, for schedules that split backward tasks: marks the operations that a
/// weight-gradient task runs, and keeps what they read of the input-gradient task and the forward
/// pass.
void separate_weight_gradients(ShardedLayer& layer);

}  // namespace meshplan::program
