// Where parameters are frozen, a part of a layer's backward pass leads to no gradient that anyone
// asks for (docs/fine_tuning/frozen_parameters.md).
#include "passes/drop_unneeded.hpp"

#include <algorithm>
#include <ranges>
#include <set>

#include "core/index.hpp"

namespace meshplan::program {
namespace {

/// Keeps what leads to the gradient of a trained parameter, or to one of the buffers `needed`.
void drop_operations(ShardedLayer& layer, std::set<ValueId> needed) {
  std::vector<Operation> kept;
  for (Operation& operation : layer.block.backward | std::views::reverse) {
    const bool leads = std::ranges::any_of(operation.outputs, [&](ValueId id) {
      return layer.block.values[at(id)].storage == Storage::Gradient ||
             needed.contains(layer.root(id));
    });
    if (!leads) continue;
    for (const ValueId input : operation.inputs) needed.insert(layer.root(input));
    kept.push_back(std::move(operation));
  }
  std::ranges::reverse(kept);
  layer.block.backward = std::move(kept);
}

/// What no backward operation reads is not kept for it.
void forget_unread(ShardedLayer& layer) {
  std::set<ValueId> read;
  for (const Operation& operation : layer.block.backward)
    for (const ValueId input : operation.inputs) read.insert(layer.root(input));
  for (std::size_t id = 0; id < layer.block.values.size(); ++id) {
    Value& value = layer.block.values[id];
    if (read.contains(static_cast<ValueId>(id)) || value.alias) continue;
    if (value.storage == Storage::Saved) value.storage = Storage::Transient;
    if (value.storage == Storage::LayerInput) value.keep = Keep::InForward;
  }
}

}  // namespace

void drop_unneeded(ShardedLayer& layer, std::optional<ValueId> input_gradient) {
  std::set<ValueId> needed;
  if (input_gradient) needed.insert(layer.root(*input_gradient));
  drop_operations(layer, std::move(needed));
  forget_unread(layer);
}

}  // namespace meshplan::program
