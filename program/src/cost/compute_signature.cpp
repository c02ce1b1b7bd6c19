// Names of compute operations by which measurements are found again.
#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "cost/compute_operation.hpp"
#include "program/memory/address.hpp"

namespace meshplan::program {
namespace {

using models::OpKind;

struct KindName {
  OpKind kind;
  std::string_view name;
};
constexpr KindName kKindNames[] = {
    {OpKind::Embedding, "embedding"},
    {OpKind::PositionEmbedding, "position_embedding"},
    {OpKind::Scale, "scale"},
    {OpKind::RmsNorm, "rms_norm"},
    {OpKind::LayerNorm, "layer_norm"},
    {OpKind::HeadRmsNorm, "head_rms_norm"},
    {OpKind::Linear, "linear"},
    {OpKind::Rope, "rope"},
    {OpKind::Attention, "attention"},
    {OpKind::GatedActivation, "gated_activation"},
    {OpKind::Activation, "activation"},
    {OpKind::Add, "add"},
    {OpKind::Accumulate, "accumulate"},
    {OpKind::BiasAdd, "bias_add"},
    {OpKind::CrossEntropy, "cross_entropy"},
    {OpKind::CrossEntropyLocal, "cross_entropy_local"},
    {OpKind::CrossEntropyCombine, "cross_entropy_combine"},
    {OpKind::SumLoss, "sum_loss"},
    {OpKind::Router, "router"},
    {OpKind::DispatchPlan, "dispatch_plan"},
    {OpKind::ExchangeSizes, "exchange_sizes"},
    {OpKind::Dispatch, "dispatch"},
    {OpKind::RegroupRows, "regroup_rows"},
    {OpKind::GroupedLinear, "grouped_linear"},
    {OpKind::Combine, "combine"},
    {OpKind::SliceRows, "slice_rows"},
    {OpKind::SliceColumns, "slice_columns"},
    {OpKind::PackColumns, "pack_columns"},
    {OpKind::UnpackColumns, "unpack_columns"},
    {OpKind::KeyValues, "key_values"},
    {OpKind::OrderChunks, "order_chunks"},
    {OpKind::MergeAttention, "merge_attention"},
    {OpKind::Convert, "convert"},
    {OpKind::Slice, "slice"},
    {OpKind::LatentHeads, "latent_heads"},
    {OpKind::SigmoidGate, "sigmoid_gate"},
    {OpKind::Pool, "pool"},
    {OpKind::RouterLoad, "router_load"},
    {OpKind::SequenceLoad, "sequence_load"},
    {OpKind::RouterLosses, "router_losses"},
    {OpKind::LimitChoices, "limit_choices"},
    {OpKind::Quantize, "quantize"},
    {OpKind::ScaledLinear, "scaled_linear"},
};

std::string_view name_of(OpKind kind) {
  const auto* found = std::ranges::find(kKindNames, kind, &KindName::kind);
  require_invariant(found != std::end(kKindNames), "operation without a signature");
  return found->name;
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::Forward:
    case Phase::Recompute:
      return "forward";  // the same operation, priced alike
    case Phase::InputGrad:
      return "input_grad";
    case Phase::WeightGrad:
      return "weight_grad";
    case Phase::Reduce:
      return "reduce";
    case Phase::Optimizer:
      return "optimizer";
  }
  throw InvariantError("phase without a name");
}

/// What besides its shape an operation's time depends on.
std::string attribute_flags(const ComputeOp& work) {
  const models::OpAttributes& a = work.attributes;
  switch (work.kind) {
    case OpKind::Activation:
    case OpKind::GatedActivation:
      return fmt::format(" {}", models::name_of_activation(a.activation));
    case OpKind::Rope:
      return fmt::format(" heads={} rotated={}", a.heads + a.kv_heads, a.rope_size);
    case OpKind::HeadRmsNorm:
      return fmt::format(" heads={} size={}", a.heads + a.kv_heads, a.head_size) +
             (a.rope_size > 0 ? fmt::format(" rotated={}", a.rope_size) : "");
    case OpKind::Quantize:
      return fmt::format(" {}{}{}", work.cast->gradient ? "e5m2" : "e4m3",
                         work.cast->rows ? " rows" : "", work.cast->columns ? " columns" : "");
    case OpKind::Attention:
    case OpKind::CrossEntropyLocal:
    case OpKind::CrossEntropy:
      return a.softcap > 0 ? " softcap" : "";
    default:
      return "";
  }
}

/// "192", or "192:128" where value heads have another size.
std::string head_sizes(const models::OpAttributes& a) {
  return a.value_head_size == a.head_size ? fmt::format("{}", a.head_size)
                                          : fmt::format("{}:{}", a.head_size, a.value_head_size);
}

bool has_bias(const ComputeOperation& op) {
  const Operation& operation = op.operation;
  if (op.work.kind == OpKind::ScaledLinear) return operation.inputs.size() > 4;
  if (operation.phase == Phase::WeightGrad) return operation.outputs.size() > 1;
  const std::size_t plain =
      op.work.kind == OpKind::GroupedLinear ? 3 : (op.work.adds_residual ? 3 : 2);
  return operation.phase != Phase::InputGrad && operation.inputs.size() > plain;
}

std::string linear_signature(const ComputeOperation& op) {
  const LinearSizes sizes = op.linear_sizes();
  std::string product = fmt::format(
      " t={} out={} in={}{}{}{}", sizes.tokens, sizes.out, sizes.in, has_bias(op) ? " bias" : "",
      op.work.adds_residual ? " residual" : "", op.instance.accumulate ? " accumulate" : "");
  if (!op.work.fused_activation) return product;
  // Whether it also keeps what the function reads makes a difference to what it writes.
  const bool keeps = op.operation.outputs.size() > 1;
  return product + fmt::format(" {}{}", models::name_of_activation(*op.work.fused_activation),
                               keeps ? " aux" : "");
}

std::string grouped_linear_signature(const ComputeOperation& op) {
  const LinearSizes sizes = op.linear_sizes();
  return fmt::format(" t={} experts={} out={} in={}{}{}", sizes.tokens, sizes.experts, sizes.out,
                     sizes.in, has_bias(op) ? " bias" : "",
                     op.instance.accumulate ? " accumulate" : "");
}

std::string document_attention_signature(const ComputeOperation& op) {
  const std::vector<ValueId>& inputs = op.operation.inputs;
  const bool backward = op.operation.phase == Phase::InputGrad;
  const ValueId queries = inputs[backward ? 1 : 0];
  const AttentionInputs more = op.attention_inputs();
  const ValueId keys = more.keys_values.value_or(queries);
  const std::int64_t sequences = op.program.sizes.sequences;
  const auto rows = [&](ValueId id) {
    return local_shape(op.program, op.value(id)).front() / sequences;
  };
  return fmt::format(" b={} s={} keys={} h={} k={} e={} documents pairs={:.0f}{}", sequences,
                     rows(queries), rows(keys), op.work.attributes.heads,
                     op.work.attributes.kv_heads, head_sizes(op.work.attributes),
                     op.document_pairs(), more.sinks ? " sinks" : "") +
         attribute_flags(op.work);
}

std::string attention_signature(const ComputeOperation& op) {
  if (op.work.documents) return document_attention_signature(op);
  const models::OpAttributes& a = op.work.attributes;
  const std::vector<AttentionTile> tiles = op.attention_tiles();
  const AttentionTile& last = tiles.back();
  std::string text =
      fmt::format(" b={} s={} h={} k={} e={} {}", op.program.sizes.sequences, last.num_queries,
                  a.heads, a.kv_heads, head_sizes(a), last.causal ? "causal" : "full");
  if (a.window > 0) text += fmt::format(" window={}", a.window);
  if (tiles.size() > 1)
    text += fmt::format(" chunks={} keys={}", tiles.size(), op.program.plan.workload.seq_len);
  else if (last.num_keys != last.num_queries)
    text += fmt::format(" keys={}", last.num_keys);
  if (op.attention_inputs().sinks) text += " sinks";
  return text + attribute_flags(op.work);
}

/// A norm that makes the sum that it works on reads a residual, and so does one that adds its
/// gradient to the residual stream's.
bool adds_residual(const ComputeOperation& op) {
  if (op.work.adds_residual) return true;
  const bool norm = op.work.kind == OpKind::RmsNorm || op.work.kind == OpKind::LayerNorm;
  const std::size_t plain_inputs = op.work.kind == OpKind::RmsNorm ? 4 : 5;
  return norm && op.operation.phase == Phase::InputGrad &&
         op.operation.inputs.size() > plain_inputs;
}

/// Of work on routed rows: measured are operators with the rows of a balanced router.
std::string imbalance_flag(const ComputeOperation& op) {
  if (op.sizes.routed_tokens <= balanced_rows(op.program.plan)) return "";
  const auto routed = [&](ValueId id) {
    const std::vector<models::Dim>& shape = op.value(id).shape;
    return !shape.empty() && shape.front().symbol == models::Symbol::RoutedTokens;
  };
  if (std::ranges::none_of(op.operation.inputs, routed) &&
      std::ranges::none_of(op.operation.outputs, routed))
    return "";
  return fmt::format(" busiest=x{:g}", op.program.plan.expected_expert_imbalance);
}

/// Of all others: the shape that they move.
std::string elementwise_signature(const ComputeOperation& op) {
  // An embedding reads ids; what it moves is rows of the model's width.
  const bool lookup = op.work.kind == OpKind::Embedding && op.operation.phase == Phase::Forward;
  const ValueId moved = lookup ? op.operation.outputs[0] : op.operation.inputs[0];
  std::string text;
  for (const std::int64_t size : local_shape(op.program, op.value(moved)))
    text += fmt::format(" {}", size);
  if (adds_residual(op)) text += " residual";
  if (op.instance.accumulate) text += " accumulate";
  return text + imbalance_flag(op) + attribute_flags(op.work);
}

std::string shape_signature(const ComputeOperation& op) {
  switch (op.work.kind) {
    case OpKind::Linear:
    case OpKind::ScaledLinear:
      return linear_signature(op);
    case OpKind::GroupedLinear:
      return grouped_linear_signature(op);
    case OpKind::Attention:  // the gradient of its sinks reads o and do once
      return op.operation.phase == Phase::WeightGrad ? elementwise_signature(op)
                                                     : attention_signature(op);
    default:
      return elementwise_signature(op);
  }
}

}  // namespace

std::vector<std::string> compute_kinds() {
  std::vector<std::string> names;
  for (const auto& [kind, name] : kKindNames) names.emplace_back(name);
  return names;
}

std::string compute_signature(const ComputeOperation& op) {
  return fmt::format("{}.{} {}", name_of(op.work.kind), name_of(op.operation.phase),
                     name_of(op.program.plan.workload.precision)) +
         shape_signature(op);
}

}  // namespace meshplan::program
