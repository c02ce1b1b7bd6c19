#pragma once

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// Pass 1: local shapes and the collectives that the placements need.
ShardedLayer shard(const models::LayerGraph& graph, const ShardContext& context);

}  // namespace meshplan::program
