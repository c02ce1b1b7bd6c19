#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layer/sharded_layer.hpp"
#include "program/plan/lowering_profile.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// A layer placed in a stage, before its parameters have a place in the model.
struct PlacedLayer {
  int sharded = 0;           // index into the list of distinct layers
  std::optional<int> layer;  // model layer; absent for embedding and head
  std::string prefix;        // of parameter names: "layers.7."
};

/// The flat order of a stage's parameters: as their gradients become ready in the backward pass,
/// then the experts', then those that need one more sum before data parallelism (tied over stages,
/// partial over tp), so that a bucket is a contiguous range, last what no gradient moves: the
/// frozen ones at the end, of which there are weights only. Fills program.parameters,
/// parameter_elements, buckets and the layers' indexes.
struct ParameterOrder {
  FlatRange tied;  // ranges of the last bucket
  FlatRange tp_partial;
};
ParameterOrder place_parameters(Program& program, const std::vector<PlacedLayer>& placed,
                                const std::vector<ShardedLayer>& sharded,
                                const LoweringProfile& profile);

}  // namespace meshplan::program
