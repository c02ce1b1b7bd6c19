// Derives the backward operations of a sharded layer. Which gradients are partial sums, and which
// collective completes them, follows from the placements: a gradient must be laid out as the dual
// of its value (backward_pass.hpp), and the same moves turn the one that it has into the one that
// it must be.
#include "passes/differentiate.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"
#include "experts/adjoints_experts.hpp"
#include "layer/layout_moves.hpp"
#include "passes/adjoints.hpp"
#include "passes/drop_unneeded.hpp"

namespace meshplan::program {
namespace {

void append_compute_adjoint(BackwardPass& pass, const Operation& op) {
  const auto& work = std::get<ComputeOp>(op.work);
  switch (work.kind) {
    case ComputeKind::SumLoss:
    case ComputeKind::CrossEntropyCombine:
      return;  // part of the local one's
    case ComputeKind::CrossEntropyLocal:
      return loss_adjoint(pass, op);
    case ComputeKind::Add:
      return add_adjoint(pass, op);
    case ComputeKind::BiasAdd:
      return bias_adjoint(pass, op, work);
    case ComputeKind::Linear:
      return linear_adjoint(pass, op, work);
    case ComputeKind::Embedding:
    case ComputeKind::PositionEmbedding:
      return embedding_adjoint(pass, op, work);
    case ComputeKind::Rope:
    case ComputeKind::Scale:
      return in_place_adjoint(pass, op, work);
    case ComputeKind::RmsNorm:
    case ComputeKind::LayerNorm:
      return norm_adjoint(pass, op, work);
    case ComputeKind::HeadRmsNorm:
      return head_norm_adjoint(pass, op, work);
    case ComputeKind::Attention:
      if (work.ring_step) return;  // a ring's is appended as a whole, where its result is made
      return attention_adjoint(pass, op, work);
    case ComputeKind::SparseAttention:
      return sparse_attention_adjoint(pass, op, work);
    case ComputeKind::IndexerLoss:
      return indexer_adjoint(pass, op, work);
    case ComputeKind::MergeAttention:
    case ComputeKind::Convert:
      if (!pass.has_gradient(op.outputs.front())) return;
      return ring_adjoint(pass, op);
    case ComputeKind::Activation:
    case ComputeKind::GatedActivation:
      return activation_adjoint(pass, op, work);
    case ComputeKind::KeyValues:
      return key_values_adjoint(pass, op, work);
    case ComputeKind::OrderChunks:
    case ComputeKind::PackColumns:
    case ComputeKind::UnpackColumns:
      return exchange_copy_adjoint(pass, op, work);
    case ComputeKind::Router:
      return router_adjoint(pass, op, work);
    case ComputeKind::Slice:
      return slice_adjoint(pass, op, work);
    case ComputeKind::Concat:
      return concat_adjoint(pass, op, work);
    case ComputeKind::LatentHeads:
      return latent_heads_adjoint(pass, op, work);
    case ComputeKind::SigmoidGate:
      return gate_adjoint(pass, op, work);
    case ComputeKind::Pool:
      return pool_adjoint(pass, op, work);
    case ComputeKind::ShortConvolution:
      return convolution_adjoint(pass, op, work);
    case ComputeKind::GatedNorm:
      return gated_norm_adjoint(pass, op, work);
    case ComputeKind::LinearAttention:
    case ComputeKind::StateSpace:
      return recurrence_adjoint(pass, op, work);
    case ComputeKind::SelectKeys:    // no gradient passes through a choice
    case ComputeKind::RouterLosses:  // part of the router's; the others make integers
    case ComputeKind::RouterLoad:
    case ComputeKind::SequenceLoad:
    case ComputeKind::LimitChoices:
    case ComputeKind::DispatchPlan:
    case ComputeKind::ExchangeSizes:
    case ComputeKind::NodeChoices:
      return;
    case ComputeKind::Dispatch:
      return dispatch_adjoint(pass, op, work);
    case ComputeKind::RegroupRows:
      return regroup_adjoint(pass, op, work);
    case ComputeKind::GroupedLinear:
      return grouped_linear_adjoint(pass, op, work);
    case ComputeKind::Combine:
      return combine_adjoint(pass, op, work);
    case ComputeKind::PackRows:  // rounding, whose gradient is passed on
    case ComputeKind::UnpackRows:
      return pass.contribute(op.inputs[0], pass.output_gradient(op));
    case ComputeKind::NodeRouting:
      return node_routing_adjoint(pass, op, work);
    case ComputeKind::SumNodes:
      return sum_nodes_adjoint(pass, op, work);
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

void differentiate(ShardedLayer& layer, const ShardContext& context,
                   const RecomputedPart& recompute, const LoweringProfile& profile) {
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
