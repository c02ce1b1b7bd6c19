#pragma once

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// After pass 3: products of the layer's linears are in FP8, and what they read is quantized before
/// them. With `keep_weights` weights are quantized once a step, else wherever they are read.
void quantize_linears(ShardedLayer& layer, bool keep_weights);

}  // namespace meshplan::program
