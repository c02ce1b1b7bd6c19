#include "layer/backward_pass.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/index.hpp"
#include "layer/layout_moves.hpp"

namespace meshplan::program {
namespace {

Placement dual(Placement where) {
  return where == Placement::Partial ? Placement::Replicated : where;
}

bool moves_over_context(const Operation& op) {
  if (const auto* collective = std::get_if<CollectiveOp>(&op.work))
    return collective->group == Group::Cp;
  return std::get<ComputeOp>(op.work).kind == ComputeKind::OrderChunks;
}

}  // namespace

void BackwardPass::emit_input_gradient(const Operation& op, const ComputeOp& work,
                                       std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
  layer_.emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work, std::move(inputs),
              std::move(outputs));
}

void BackwardPass::emit_weight_gradient(const Operation& op, const ComputeOp& work,
                                        const Gradient& dy, std::vector<ValueId> inputs,
                                        const std::vector<ValueId>& weights) {
  std::vector<ValueId> outputs;
  for (const ValueId weight : weights)
    if (is_trained(weight)) outputs.push_back(gradient_of_parameter(weight, dy));
  if (outputs.empty()) return;
  const std::string name = op.name + ".weight_grad";
  if (is_trained(weights.front()))
    return layer_.emit(name, Phase::WeightGrad, Lane::Compute, work, std::move(inputs), outputs);
  // A bias alone: the sum of dy, of routed rows expert by expert.
  const ComputeOp sum{.kind = ComputeKind::BiasAdd,
                      .tokens_sharded = layer_.tokens_sharded(inputs.front())};
  std::vector<ValueId> summed = {inputs.front()};
  if (work.kind == ComputeKind::GroupedLinear) summed.push_back(inputs.back());
  layer_.emit(name, Phase::WeightGrad, Lane::Compute, sum, std::move(summed), outputs);
}

ValueId BackwardPass::fresh_gradient(ValueId of, Placement where) {
  Value gradient = value(of);
  gradient.name += ".grad";
  gradient.storage = Storage::Transient;
  gradient.alias.reset();
  if (gradient.float8_size > 0) {  // of what was packed
    gradient.dtype = context_.compute;
    gradient.shape.back().count = std::exchange(gradient.float8_size, 0);
  }
  return layer_.add_value(std::move(gradient), where);
}

ValueId BackwardPass::same_buffer(ValueId buffer, Placement where) {
  Value same = value(buffer);
  same.alias = buffer;
  return layer_.add_value(std::move(same), where);
}

Gradient BackwardPass::gradient(ValueId id) const {
  const auto found = gradients_.find(id);
  require_invariant(found != gradients_.end(),
                    layer_.block.values[at(id)].name + " has no gradient");
  return found->second;
}

std::optional<ValueId> BackwardPass::own_gradient(ValueId id, Placement where) const {
  const auto found = gradients_.find(id);
  const bool usable = found != gradients_.end() && found->second.where == where &&
                      !shared(id, found->second.buffer);
  return usable ? std::optional(found->second.buffer) : std::nullopt;
}

bool BackwardPass::shared(ValueId owner, ValueId buffer) const {
  return std::ranges::any_of(gradients_, [&](const auto& entry) {
    return entry.first != owner && !retired_.contains(entry.first) &&
           layer_.root(entry.second.buffer) == layer_.root(buffer);
  });
}

void BackwardPass::contribute(ValueId id, Gradient gradient) {
  const auto found = gradients_.find(id);
  if (found == gradients_.end()) {
    gradients_[id] = gradient;
    return;
  }
  // Two partial sums are summed over the group once, as one.
  if (gradient.where != found->second.where) {
    found->second = as_dual(id, found->second);
    gradient = as_dual(id, gradient);
  }
  const ComputeOp add{.kind = ComputeKind::Accumulate,
                      .tokens_sharded = found->second.where == Placement::TokensSharded};
  ValueId target = found->second.buffer;
  ValueId other = gradient.buffer;
  if (shared(id, target)) std::swap(target, other);
  require_invariant(!shared(id, target), "both gradients of " + value(id).name + " are shared");
  const ValueId sum = same_buffer(target, found->second.where);
  layer_.emit(value(id).name + ".grad.add", Phase::InputGrad, Lane::Compute, add, {target, other},
              {sum});
  found->second.buffer = sum;
}

/// Appends whatever turns the layout that the gradient of `id` has into the one it must have.
Gradient BackwardPass::as_dual(ValueId id, Gradient have) {
  const Placement want = dual(layer_.placement[at(id)]);
  const MoveTarget target{
      .phase = Phase::InputGrad, .tp = context_.tp, .name = value(id).name + ".grad"};
  return {move_value(layer_, target, have.buffer, have.where, want, layer_.columns[at(id)]), want};
}

void BackwardPass::finalize(ValueId id) {
  const auto found = gradients_.find(id);
  if (found == gradients_.end() || !finalized_.insert(id).second) return;
  const Operation* made_by = forward_.producer(id);
  // A move changes no number, so the gradient moves on to what the value was made from.
  if (made_by != nullptr && only_moves(*made_by)) {
    retire(id);
    const ValueId from = made_by->inputs.front();
    contribute(from, found->second);
    if (forward_.num_consumers(from) == 1) finalize(from);
    return;
  }
  // Sums over tp and moves over cp change places: the smaller part is summed, after the move.
  if (found->second.where == Placement::Partial && made_by != nullptr &&
      moves_over_context(*made_by))
    return;
  found->second = as_dual(id, found->second);
}

bool BackwardPass::is_trained(ValueId weight) const {
  const int index = layer_.block.values[at(weight)].index;
  return !layer_.parameters[at(index)].frozen();
}

ValueId BackwardPass::gradient_of_parameter(ValueId weight, const Gradient& dy) {
  LayerParameter& parameter = layer_.parameters[at(value(weight).index)];
  if (!parameter.parameter.expert && !parameter.parameter.shard_dim &&
      dy.where != Placement::Replicated)
    parameter.parameter.tp_partial = true;
  return parameter.gradient;
}

}  // namespace meshplan::program
