#include "passes/shard_attention.hpp"

#include <algorithm>

#include "core/index.hpp"

namespace meshplan::program {

using models::Op;
using models::TensorId;

void AttentionSharder::over_ranks(const Op& op) {
  const ValueId qkv = build_.whole_heads(op.inputs.front());
  const bool heads_cut = build_.placement(qkv) == Placement::FeaturesSharded;
  std::optional<ValueId> sinks;
  if (!op.parameters.empty())
    sinks = build_.parameter(op.parameters.front(), heads_cut ? std::optional(0) : std::nullopt);
  attend_over_ranks(op, build_.compute(op, /*tokens_sharded=*/false, heads_cut), qkv, sinks);
}

void AttentionSharder::attend_over_ranks(const Op& op, const ComputeOp& attention, ValueId qkv,
                                         std::optional<ValueId> sinks) {
  const ValueId o = build_.add(op.outputs.front(), build_.placement(qkv));
  set_results(op, context_sharder_.attend(op.name, attention, {qkv, sinks}, o));
}

void AttentionSharder::set_results(const Op& op, const ContextSharder::Attended& made) {
  build_.set_value(op.outputs.front(), made.o);
  build_.set_value(op.outputs.back(), made.lse);
}

bool AttentionSharder::gathers_latents() const {
  return context_.cp > 1 && context_.method == ContextMethod::AllGather;
}

bool AttentionSharder::expands_latents(const Op& op) const {
  return gathers_latents() && std::ranges::any_of(graph_.ops, [&](const Op& other) {
           return other.kind == models::OpKind::LatentAttention &&
                  other.inputs[1] == op.outputs.front();
         });
}

ValueId AttentionSharder::gather_latents(const Op& op, ValueId x) {
  return context_sharder_.gather(build_.tensor(op.inputs.front()).name, x);
}

void AttentionSharder::rotate(const std::string& name, ComputeOp work, ValueId x, TensorId out) {
  const ValueId y = build_.add(out, build_.placement(x), {.alias = x});
  std::vector<ValueId> inputs = {x};
  build_.add_positions(work, inputs);
  build_.emit(name, Lane::Compute, work, inputs, {y});
}

void AttentionSharder::latent_rope(const Op& op) {
  const ValueId q = build_.whole_heads(op.inputs[0]);
  ComputeOp work = build_.compute(op, false, build_.placement(q) == Placement::FeaturesSharded);
  work.attributes.kv_heads = 0;
  work.attributes.rope_offset = work.attributes.head_size - work.attributes.rope_size;
  rotate(op.name, work, q, op.outputs[0]);
  work.attributes.heads = 1;
  work.attributes.head_size = work.attributes.rope_size;
  work.attributes.rope_offset = 0;
  rotate(op.name + ".k", work, build_.laid_out(op.inputs[1], Placement::Replicated), op.outputs[1]);
}

/// Whole heads side by side, out of `parts`: [queries,] own parts of keys and values, and the
/// part of the keys that all heads share.
ValueId AttentionSharder::latent_heads(const Op& op, const std::string& name,
                                       const std::vector<ValueId>& parts) {
  const models::OpAttributes& all = op.attributes;
  const ValueId kv = parts[parts.size() - 2];
  const Placement where = build_.placement(kv);
  std::vector<int> head_sizes = {all.head_size, all.value_head_size};
  if (parts.size() > 2) head_sizes.insert(head_sizes.begin(), all.head_size);
  std::vector<ShardSection> columns;
  std::int64_t begin = 0;
  for (const int head_size : head_sizes) {
    const std::int64_t width = std::int64_t{all.heads} * head_size;
    columns.push_back({.begin = begin, .size = width / (build_.sharded() ? context_.tp : 1)});
    begin += width;
  }
  ComputeOp work = build_.compute(op, false, where == Placement::FeaturesSharded);
  const ValueId heads = layer_.add_value(
      {.name = name,
       .dtype = context_.compute,
       .shape = {layer_.block.values[at(kv)].shape.front(), {.count = local_size(columns)}}},
      where, build_.sharded() ? columns : std::vector<ShardSection>{});
  build_.emit(name, Lane::Compute, work, parts, {heads});
  return heads;
}

void AttentionSharder::latent(const Op& op) {
  const ValueId q = build_.whole_heads(op.inputs[0]);
  const ValueId kv = build_.whole_heads(op.inputs[1]);
  const ValueId k_rope = build_.laid_out(op.inputs[2], Placement::Replicated);
  const Placement where = build_.placement(q);
  ComputeOp work = build_.compute(op, false, where == Placement::FeaturesSharded);
  work.kind = ComputeKind::Attention;
  if (gathers_latents()) {
    const ValueId all_k_rope = context_sharder_.gather(build_.tensor(op.inputs[2]).name, k_rope);
    const ValueId heads = latent_heads(op, op.name + ".heads", {kv, all_k_rope});
    const ValueId o = build_.add(op.outputs.front(), where);
    return set_results(op, context_sharder_.attend_to_all(op.name, work, {.qkv = q}, heads, o));
  }
  const ValueId qkv = latent_heads(op, op.name + ".heads", {q, kv, k_rope});
  if (op.attributes.selected_keys > 0) return attend_to_chosen(op, work, qkv);
  if (context_.cp > 1) return attend_over_ranks(op, work, qkv);
  const ValueId out = build_.add(op.outputs[0], where);
  std::vector<ValueId> inputs = {qkv};
  build_.add_key_ranges(work, inputs);
  build_.emit(op.name, Lane::Compute, work, inputs, {out, build_.add(op.outputs[1], where)});
}

void AttentionSharder::index_rope(const Op& op) {
  const ValueId x = build_.laid_out(op.inputs.front(), Placement::Replicated);
  rotate(op.name, build_.compute(op, false, false), x, op.outputs.front());
}

void AttentionSharder::select_keys(const Op& op) {
  std::vector<ValueId> inputs;
  for (const TensorId input : op.inputs)
    inputs.push_back(build_.laid_out(input, Placement::Replicated));
  selection_ = {.work = build_.compute(op, false, false), .indexer = inputs};
  selection_.choices = build_.add(op.outputs.front(), Placement::Replicated);
  ComputeOp work = selection_.work;
  build_.add_key_ranges(work, inputs);
  build_.emit(op.name, Lane::Compute, work, inputs, {selection_.choices});
}

void AttentionSharder::sparse(const Op& op) {
  const ValueId qkv = build_.whole_heads(op.inputs.front());
  const bool heads_cut = build_.placement(qkv) == Placement::FeaturesSharded;
  attend_to_chosen(op, build_.compute(op, /*tokens_sharded=*/false, heads_cut), qkv);
}

void AttentionSharder::attend_to_chosen(const Op& op, ComputeOp work, ValueId qkv) {
  const Placement where = build_.placement(qkv);
  work.kind = ComputeKind::SparseAttention;
  const ValueId o = build_.add(op.outputs.front(), where);
  const ValueId lse = build_.add(op.outputs.back(), where);
  Value sums = layer_.block.values[at(selection_.choices)];
  sums.name = op.name + ".probabilities";
  sums.dtype = DType::F32;
  // Of the heads that are here: of all of them only as a sum over the group.
  const Placement partial =
      where == Placement::FeaturesSharded ? Placement::Partial : Placement::Replicated;
  const ValueId probabilities = layer_.add_value(std::move(sums), partial);
  build_.emit(op.name, Lane::Compute, work, {qkv, selection_.choices}, {o, lse, probabilities});
  learn_choices(op, probabilities);
}

void AttentionSharder::learn_choices(const Op& op, ValueId probabilities) {
  const MoveTarget target{
      .phase = Phase::Forward, .tp = context_.tp, .name = op.name + ".probabilities"};
  const ValueId of_all_heads = move_value(
      layer_, target, probabilities, build_.placement(probabilities), Placement::Replicated, {});
  ComputeOp work = selection_.work;
  work.kind = ComputeKind::IndexerLoss;
  std::vector<ValueId> inputs = selection_.indexer;
  inputs.insert(inputs.end(), {selection_.choices, of_all_heads});
  const std::vector<models::Dim> tokens{layer_.block.values[at(selection_.choices)].shape.front()};
  const ValueId loss =
      layer_.add_value({.name = "indexer.loss", .shape = tokens}, Placement::Replicated);
  build_.emit("indexer.loss", Lane::Compute, work, std::move(inputs), {loss});
  const ValueId sum = layer_.add_value({.name = "indexer.loss_sum",
                                        .dtype = DType::F64,
                                        .shape = {{}},
                                        .storage = Storage::IndexerLoss},
                                       Placement::Replicated);
  build_.emit("indexer.loss.sum", Lane::Compute, ComputeOp{.kind = ComputeKind::SumLoss}, {loss},
              {sum});
}

}  // namespace meshplan::program
