// A tensor is quantized with the scale of its largest number ("current scaling"). A norm or an
// activation that writes it can keep that number, so that the tensor is read once, for its codes
// (as Transformer Engine does: pytorch/csrc/extensions, FUSED_NORM_AMAX_FP8). What a library, a
// collective or another layer writes is read for it.
#include "passes/keep_largest.hpp"

#include <algorithm>
#include <ranges>

#include "core/index.hpp"

namespace meshplan::program {
namespace {

class LargestKeeper {
 public:
  explicit LargestKeeper(ShardedLayer& layer) : layer_(layer) {}

  void run(std::vector<Operation>& operations) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      auto* work = std::get_if<ComputeOp>(&operations[i].work);
      if (work == nullptr || work->kind != ComputeKind::Quantize) continue;
      const ValueId tensor = operations[i].inputs.front();
      Operation* maker = last_writer(operations, i, tensor);
      if (maker == nullptr || !can_keep(*maker, tensor)) continue;
      operations[i].inputs.push_back(largest_of(*maker, tensor));
      work->cast->largest = true;
    }
  }

 private:
  Operation* last_writer(std::vector<Operation>& operations, std::size_t before, ValueId tensor) {
    for (std::size_t i = before; i-- > 0;)
      for (const ValueId output : operations[i].outputs)
        if (layer_.root(output) == layer_.root(tensor)) return &operations[i];
    return nullptr;
  }

  /// Is all of the tensor the first thing that it writes?
  bool can_keep(const Operation& maker, ValueId tensor) const {
    const auto* work = std::get_if<ComputeOp>(&maker.work);
    if (work == nullptr) return false;
    switch (work->kind) {
      case ComputeKind::RmsNorm:
      case ComputeKind::LayerNorm:
      case ComputeKind::Activation:
      case ComputeKind::GatedActivation:
        break;
      default:
        return false;
    }
    const ValueId written = maker.outputs.front();
    const auto& values = layer_.block.values;
    return layer_.root(written) == layer_.root(tensor) &&
           values[at(written)].shape == values[at(tensor)].shape;
  }

  ValueId largest_of(Operation& maker, ValueId tensor) {
    auto& work = std::get<ComputeOp>(maker.work);
    if (work.keeps_largest) return maker.outputs.back();
    work.keeps_largest = true;
    maker.outputs.push_back(
        layer_.add_value({.name = layer_.block.values[at(tensor)].name + ".largest",
                          .shape = {models::Dim{}},
                          .storage = Storage::Transient},
                         Placement::Replicated));
    return maker.outputs.back();
  }

  ShardedLayer& layer_;
};

}  // namespace

void keep_largest(ShardedLayer& layer) {
  LargestKeeper keeper(layer);
  keeper.run(layer.block.forward);
  keeper.run(layer.block.backward);
}

}  // namespace meshplan::program
