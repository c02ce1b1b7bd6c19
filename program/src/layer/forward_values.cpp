#include "layer/forward_values.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {

ForwardValues::ForwardValues(ShardedLayer& layer, const ShardContext& context,
                             const RecomputedPart& recompute, const LoweringProfile& profile)
    : layer_(layer),
      context_(context),
      recompute_(recompute),
      regather_sequence_(profile.regather_sequence),
      producer_(layer.block.values.size(), -1),
      num_consumers_(layer.block.values.size(), 0) {
  const auto& forward = layer.block.forward;
  for (std::size_t i = 0; i < forward.size(); ++i) {
    for (const ValueId output : forward[i].outputs) producer_[at(output)] = static_cast<int>(i);
    for (const ValueId input : forward[i].inputs) ++num_consumers_[at(input)];
  }
}

const Operation* ForwardValues::producer(ValueId id) const {
  const int index = producer_[at(id)];
  return index < 0 ? nullptr : &layer_.block.forward[at(index)];
}

/// What works in place is made again together with what it works on: its result and what it reads
/// are one buffer, of which there is either a kept version or a new one.
const Operation& ForwardValues::maker_of_buffer(const Operation& op) const {
  const Operation* maker = producer(layer_.root(op.outputs.front()));
  return maker == nullptr ? op : *maker;
}

bool ForwardValues::is_recomputed(const Operation& op) const {
  const bool covered = recompute_.whole_layer || recompute_.covers(maker_of_buffer(op).modules);
  if (const auto* collective = std::get_if<CollectiveOp>(&op.work))
    return covered ||
           (regather_sequence_ && collective->group == Group::Tp &&
            collective->collective == Collective::AllGather) ||
           (collective->group == Group::Cp && collective->collective != Collective::AllToAll &&
            !counts_tokens(op.inputs.front()));
  const auto& compute = std::get<ComputeOp>(op.work);
  // The keys of other ranks are fetched again rather than kept.
  if (compute.kind == ComputeKind::KeyValues || expands_latents(op)) return true;
  if (compute.kind == ComputeKind::OrderChunks && !compute.reverse)
    return is_recomputed(*producer(op.inputs.front()));
  return covered;
}

/// Makes keys and values of what was gathered from all ranks: as large as theirs.
bool ForwardValues::expands_latents(const Operation& op) const {
  const ComputeKind kind = std::get<ComputeOp>(op.work).kind;
  if (context_.cp == 1 || (kind != ComputeKind::Linear && kind != ComputeKind::LatentHeads))
    return false;
  return std::ranges::any_of(op.inputs, [&](ValueId id) {
    const Operation* maker = producer(id);
    if (maker == nullptr) return false;
    const auto* made = std::get_if<ComputeOp>(&maker->work);
    return made != nullptr && made->kind == ComputeKind::OrderChunks && !made->reverse;
  });
}

/// Numbers of a router, of which there are few: cheaper kept than fetched again.
bool ForwardValues::counts_tokens(ValueId id) const {
  const Operation* op = producer(id);
  if (op == nullptr) return false;
  if (std::holds_alternative<CollectiveOp>(op->work)) return counts_tokens(op->inputs.front());
  return std::get<ComputeOp>(op->work).kind == ComputeKind::SequenceLoad;
}

bool ForwardValues::is_head_output(const Operation& op) const {
  if (layer_.logits.empty()) return false;
  const auto* compute = std::get_if<ComputeOp>(&op.work);
  return std::ranges::find(layer_.logits, op.outputs.front()) != layer_.logits.end() ||
         (compute != nullptr && compute->kind == ComputeKind::CrossEntropyCombine);
}

ValueId ForwardValues::need(ValueId id) {
  if (const auto found = recomputed_.find(id); found != recomputed_.end()) return found->second;
  Value& root = layer_.block.values[at(layer_.root(id))];
  if (root.storage != Storage::Transient) return id;
  const Operation* op = producer(id);
  require_invariant(op != nullptr, "a transient value without a producer");
  // The head's logits become their own gradient, so they are kept rather than made twice.
  if (is_recomputed(*op) && !is_head_output(*op)) return recompute(*op, id);
  root.storage = Storage::Saved;
  return id;
}

/// @returns what it makes of `id`
ValueId ForwardValues::recompute(const Operation& op, ValueId id) {
  Operation again = op;
  again.phase = Phase::Recompute;
  for (ValueId& input : again.inputs) input = need(input);
  for (ValueId& output : again.outputs) {
    Value copy = layer_.block.values[at(output)];
    if (copy.alias) copy.alias = recomputed_.at(*copy.alias);
    copy.storage = Storage::Transient;
    copy.name += ".again";
    const ValueId made = layer_.add_value(std::move(copy), layer_.placement[at(output)]);
    recomputed_[output] = made;
    output = made;
  }
  layer_.block.backward.push_back(std::move(again));
  return recomputed_.at(id);
}

}  // namespace meshplan::program
