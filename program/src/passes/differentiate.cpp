// Derives the backward operations of a sharded layer. Which gradients are partial sums, and which
// collective completes them, follows from the placements: a gradient must be laid out as the dual
// of its value (backward_pass.hpp), and the same moves turn the one that it has into the one that
// it must be.
#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"
#include "layer/layout_moves.hpp"
#include "passes/adjoints.hpp"

namespace meshplan::program {
namespace {

using models::OpKind;

void append_compute_adjoint(BackwardPass& pass, const Operation& op) {
  const auto& work = std::get<ComputeOp>(op.work);
  switch (work.kind) {
    case OpKind::SumLoss:
    case OpKind::CrossEntropyCombine:
      return;  // part of the local one's
    case OpKind::CrossEntropyLocal:
      return loss_adjoint(pass, op);
    case OpKind::Add:
      return add_adjoint(pass, op);
    case OpKind::BiasAdd:
      return bias_adjoint(pass, op, work);
    case OpKind::Linear:
      return linear_adjoint(pass, op, work);
    case OpKind::Embedding:
    case OpKind::PositionEmbedding:
      return embedding_adjoint(pass, op, work);
    case OpKind::Rope:
    case OpKind::Scale:
      return in_place_adjoint(pass, op, work);
    case OpKind::RmsNorm:
    case OpKind::LayerNorm:
      return norm_adjoint(pass, op, work);
    case OpKind::HeadRmsNorm:
      return head_norm_adjoint(pass, op, work);
    case OpKind::Attention:
      if (work.ring_step) return;  // a ring's is appended as a whole, where its result is made
      return attention_adjoint(pass, op, work);
    case OpKind::MergeAttention:
    case OpKind::Convert:
      if (!pass.has_gradient(op.outputs.front())) return;
      return ring_adjoint(pass, op);
    case OpKind::Activation:
    case OpKind::GatedActivation:
      return activation_adjoint(pass, op, work);
    case OpKind::KeyValues:
      return key_values_adjoint(pass, op, work);
    case OpKind::OrderChunks:
    case OpKind::PackColumns:
    case OpKind::UnpackColumns:
      return exchange_copy_adjoint(pass, op, work);
    case OpKind::Router:
      return router_adjoint(pass, op, work);
    case OpKind::Slice:
      return slice_adjoint(pass, op, work);
    case OpKind::LatentHeads:
      return latent_heads_adjoint(pass, op, work);
    case OpKind::SigmoidGate:
      return gate_adjoint(pass, op, work);
    case OpKind::Pool:
      return pool_adjoint(pass, op, work);
    case OpKind::RouterLosses:  // part of the router's; the others make integers
    case OpKind::RouterLoad:
    case OpKind::SequenceLoad:
    case OpKind::LimitChoices:
    case OpKind::DispatchPlan:
    case OpKind::ExchangeSizes:
      return;
    case OpKind::Dispatch:
      return dispatch_adjoint(pass, op, work);
    case OpKind::RegroupRows:
      return regroup_adjoint(pass, op, work);
    case OpKind::GroupedLinear:
      return grouped_linear_adjoint(pass, op, work);
    case OpKind::Combine:
      return combine_adjoint(pass, op, work);
    default:
      throw InvariantError(op.name + ": no adjoint");
  }
}

void append_adjoint(BackwardPass& pass, const Operation& op) {
  if (only_moves(op)) return;  // done in finalize()
  if (std::holds_alternative<CollectiveOp>(op.work)) return exchange_adjoint(pass, op);
  append_compute_adjoint(pass, op);
  for (const ValueId output : op.outputs) pass.retire(output);
}

/// What the next layer hands back: the gradient of the residual stream.
void receive_output_gradient(BackwardPass& pass, ValueId output) {
  Value carry = pass.value(output);
  carry.name = "output.grad";
  carry.storage = Storage::LayerOutputGrad;
  carry.alias.reset();
  const Placement where = pass.layer().placement[at(output)];
  pass.set_gradient(output, {pass.layer().add_value(std::move(carry), where), where});
}

bool touches(const ShardedLayer& layer, const std::vector<ValueId>& operands, ValueId root) {
  return std::ranges::any_of(operands, [&](ValueId id) { return layer.root(id) == root; });
}

/// Where norms stand behind the sums (post-norm), the gradient that the next layer hands back ends
/// in the last of them: what is made after it may take its place.
void move_into_stream(ShardedLayer& layer, ValueId stream, ValueId made) {
  const std::vector<Operation>& backward = layer.block.backward;
  const auto uses = [&](ValueId root) {
    return [&layer, root](const Operation& op) {
      return touches(layer, op.inputs, root) || touches(layer, op.outputs, root);
    };
  };
  const auto first = std::ranges::find_if(backward, uses(made));
  require_invariant(std::find_if(first, backward.end(), uses(stream)) == backward.end(),
                    "the gradient of a layer's output is read after that of its input is made");
  layer.block.values[at(made)].alias = stream;
}

/// The input's gradient must end in the stream that the layers of a task pass on. A residual
/// stream is already there: its gradient was added to in place.
void finish_input(BackwardPass& pass, ValueId input) {
  pass.finalize(input);
  ShardedLayer& layer = pass.layer();
  const ValueId made = layer.root(pass.gradient(input).buffer);
  if (pass.value(made).storage == Storage::LayerOutputGrad) return;
  if (!layer.output) {
    pass.value(made).storage = Storage::LayerInputGrad;
    return;
  }
  const auto stream =
      std::ranges::find(layer.block.values, Storage::LayerOutputGrad, &Value::storage);
  move_into_stream(layer, static_cast<ValueId>(stream - layer.block.values.begin()), made);
}

}  // namespace

void differentiate(ShardedLayer& layer, const ShardContext& context, RecomputeKind recompute,
                   const ExecutionProfile& profile) {
  ForwardValues forward(layer, context, recompute, profile);
  BackwardPass pass(layer, context, forward);
  const bool to_input = layer.input && layer.needs_input_gradient;
  if (layer.has_backward) {
    if (layer.output) receive_output_gradient(pass, *layer.output);
    for (std::size_t i = layer.block.forward.size(); i-- > 0;) {
      const Operation& op = layer.block.forward[i];
      for (const ValueId output : op.outputs) pass.finalize(output);
      append_adjoint(pass, op);
    }
    if (to_input) finish_input(pass, *layer.input);
  }
  const bool has_frozen = std::ranges::any_of(layer.parameters, &LayerParameter::frozen);
  if (layer.has_backward && layer.needs_input_gradient && !has_frozen) return;
  std::optional<ValueId> needed;
  if (to_input) needed = pass.gradient(*layer.input).buffer;
  drop_unneeded(layer, needed);
}

}  // namespace meshplan::program
