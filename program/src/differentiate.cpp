// Derives the backward operations of a sharded layer. Which gradients are partial sums, and which
// collective completes them, follows from the placements: a gradient must be laid out as the dual
// of its value (backward_pass.hpp), and the same moves turn the one that it has into the one that
// it must be.
#include <algorithm>

#include "adjoints.hpp"
#include "core/error.hpp"
#include "layout_moves.hpp"

namespace meshplan::program {
namespace {

using models::OpKind;

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

void append_compute_adjoint(BackwardPass& pass, const Operation& op) {
  const auto& work = std::get<ComputeOp>(op.work);
  switch (work.kind) {
    case OpKind::SumLoss:
    case OpKind::CrossEntropyCombine:
      break;
    case OpKind::CrossEntropyLocal:
      loss_adjoint(pass, op);
      break;
    case OpKind::Add:
      add_adjoint(pass, op);
      break;
    case OpKind::BiasAdd:
      bias_adjoint(pass, op, work);
      break;
    case OpKind::Linear:
      linear_adjoint(pass, op, work);
      break;
    case OpKind::Embedding:
    case OpKind::PositionEmbedding:
      embedding_adjoint(pass, op, work);
      break;
    case OpKind::Rope:
    case OpKind::Scale:
      in_place_adjoint(pass, op, work);
      break;
    case OpKind::RmsNorm:
    case OpKind::LayerNorm:
      norm_adjoint(pass, op, work);
      break;
    case OpKind::HeadRmsNorm:
      head_norm_adjoint(pass, op, work);
      break;
    case OpKind::Attention:
      if (!work.ring_step) attention_adjoint(pass, op, work);
      break;  // a ring's is appended as a whole, where its result is made
    case OpKind::MergeAttention:
    case OpKind::Convert:
      if (pass.has_gradient(op.outputs.front())) ring_adjoint(pass, op);
      break;
    case OpKind::Activation:
    case OpKind::GatedActivation:
      activation_adjoint(pass, op, work);
      break;
    case OpKind::KeyValues:
      key_values_adjoint(pass, op, work);
      break;
    case OpKind::OrderChunks:
    case OpKind::PackColumns:
    case OpKind::UnpackColumns:
      exchange_copy_adjoint(pass, op, work);
      break;
    case OpKind::Router:
      router_adjoint(pass, op, work);
      break;
    case OpKind::Slice:
      slice_adjoint(pass, op, work);
      break;
    case OpKind::LatentHeads:
      latent_heads_adjoint(pass, op, work);
      break;
    case OpKind::SigmoidGate:
      gate_adjoint(pass, op, work);
      break;
    case OpKind::RouterLosses:
      break;  // part of the router's
    case OpKind::RouterLoad:
    case OpKind::SequenceLoad:
    case OpKind::LimitChoices:
    case OpKind::DispatchPlan:
    case OpKind::ExchangeSizes:
      break;  // integers
    case OpKind::Dispatch:
      dispatch_adjoint(pass, op, work);
      break;
    case OpKind::RegroupRows:
      regroup_adjoint(pass, op, work);
      break;
    case OpKind::GroupedLinear:
      grouped_linear_adjoint(pass, op, work);
      break;
    case OpKind::Combine:
      combine_adjoint(pass, op, work);
      break;
    default:
      throw InvariantError(op.name + ": no adjoint");
  }
  for (const ValueId output : op.outputs) pass.retire(output);
}

void append_adjoint(BackwardPass& pass, const Operation& op) {
  if (only_moves(op)) return;  // done in finalize()
  if (std::holds_alternative<CollectiveOp>(op.work)) return exchange_adjoint(pass, op);
  append_compute_adjoint(pass, op);
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

/// The input's gradient must end in the stream that the layers of a task pass on. A residual
/// stream is already there: its gradient was added to in place.
void finish_input(BackwardPass& pass, ValueId input) {
  pass.finalize(input);
  Value& buffer = pass.value(pass.layer().root(pass.gradient(input).buffer));
  if (buffer.storage == Storage::LayerOutputGrad) return;
  require_invariant(!pass.layer().output, "a layer without a residual stream has no lowering");
  buffer.storage = Storage::LayerInputGrad;
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
