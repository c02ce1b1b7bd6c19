// Products that end in the activation after them. A tanh GELU's input is what a linear makes, and
// its gradient goes to nothing but that linear, so both passes over the widest activation of a
// layer can be part of a product: in the forward pass of the one before it, in the backward pass of
// the input gradient of the one after it. (cuBLASLt has such epilogues; see docs/cuda.md.)
#include "passes/fuse_activations.hpp"

#include <algorithm>

#include "checks/dataflow.hpp"
#include "core/index.hpp"

namespace meshplan::program {
namespace {

const ComputeOp* as_kind(const Operation& operation, ComputeKind kind) {
  const auto* work = std::get_if<ComputeOp>(&operation.work);
  return work != nullptr && work->kind == kind ? work : nullptr;
}

/// The one activation for which products have an epilogue that also keeps its input.
bool has_epilogue(const ComputeOp& activation) {
  return activation.attributes.activation == models::ActivationKind::GeluTanh;
}

class Fuser {
 public:
  explicit Fuser(ShardedLayer& layer) : layer_(layer) {}

  void run() {
    for (auto* operations : {&layer_.block.forward, &layer_.block.backward})
      for (std::size_t i = 0; i < operations->size(); ++i)
        if (fuse(*operations, i)) --i;  // what followed it is here now
  }

 private:
  /// If `index` is an activation whose input comes from a linear of the same list, that linear
  /// does its work, and it goes. Backward, the activation's own input may be computed again between
  /// the two (nothing before reads it where the weights behind it are frozen): then the product is
  /// put off until it is there.
  bool fuse(std::vector<Operation>& operations, std::size_t index) const {
    const Operation& activation = operations[index];
    const ComputeOp* work = as_kind(activation, ComputeKind::Activation);
    if (work == nullptr || !has_epilogue(*work)) return false;
    const bool forward = is_forward(activation.phase);
    if (activation.inputs.size() != (forward ? 1U : 2U)) return false;  // rows of experts
    const ValueId from = activation.inputs.front();
    const auto maker = maker_of(operations, index, from);
    if (!maker || is_forward(operations[*maker].phase) != forward) return false;
    const bool keeps_input = forward && is_read_elsewhere(layer_.block, from, activation);
    if (!forward && is_read_elsewhere(layer_.block, from, activation)) return false;
    const bool early = may_move(layer_.block, operations, index, *maker + 1);
    if (!early && !may_move(layer_.block, operations, *maker, index - 1)) return false;
    Operation& linear = operations[*maker];
    auto& product = std::get<ComputeOp>(linear.work);
    product.fused_activation = work->attributes.activation;
    linear.outputs = {activation.outputs.front()};
    if (keeps_input) linear.outputs.push_back(from);
    if (!forward) linear.inputs.push_back(activation.inputs[1]);
    if (!early) operations[index] = std::move(linear);
    operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(early ? index : *maker));
    return true;
  }

  /// The linear that makes `id` before `index` and has nothing fused yet.
  static std::optional<std::size_t> maker_of(const std::vector<Operation>& operations,
                                             std::size_t index, ValueId id) {
    for (std::size_t i = index; i-- > 0;) {
      if (std::ranges::find(operations[i].outputs, id) == operations[i].outputs.end()) continue;
      const ComputeOp* work = as_kind(operations[i], ComputeKind::Linear);
      const bool fits = work != nullptr && !work->fused_activation &&
                        operations[i].phase != Phase::WeightGrad &&
                        operations[i].outputs.size() == 1;
      return fits ? std::optional(i) : std::nullopt;
    }
    return std::nullopt;
  }

  ShardedLayer& layer_;
};

}  // namespace

void fuse_activations(ShardedLayer& layer) {
  Fuser(layer).run();
}

}  // namespace meshplan::program
