#pragma once

#include <optional>

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// At the end of pass 3, where parameters are frozen: drops backward operations that lead neither
/// to the gradient of a trained parameter nor to `input_gradient`, and keeps nothing for them.
void drop_unneeded(ShardedLayer& layer, std::optional<ValueId> input_gradient);

}  // namespace meshplan::program
