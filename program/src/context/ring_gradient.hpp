#pragma once

#include <string>
#include <vector>

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// What the backward pass of ring attention reads: the gradient of o, and of the forward pass qkv,
/// o, lse, and the own keys and values.
struct RingOperands {
  ValueId dy = 0;
  ValueId qkv = 0;
  ValueId o = 0;
  ValueId lse = 0;
  ValueId kv = 0;
  std::vector<ValueId> key_ranges;  // packed documents: of each step
};
struct RingGradients {
  ValueId queries = 0;      // (T, H E)
  ValueId keys_values = 0;  // (T, K (E + Ev))
};

/// Appends the backward pass of ring attention to the layer's backward operations. The keys go
/// round again; their gradients go with them, one step behind, and each rank adds what its queries
/// give, the owner first: after cp steps they are home. Queries' gradients are summed in the order
/// of the steps, in fp32.
/// @param attention  of the forward pass
RingGradients append_ring_gradient(ShardedLayer& layer, int cp, const std::string& name,
                                   const RingOperands& operands, const ComputeOp& attention);

}  // namespace meshplan::program
