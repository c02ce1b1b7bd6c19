// Names of compute operations by which measurements are found again.
#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "cost/compute_operation.hpp"

namespace meshplan::program {
namespace {

struct KindName {
  ComputeKind kind;
  std::string_view name;
};
constexpr KindName kKindNames[] = {
    {ComputeKind::Embedding, "embedding"},
    {ComputeKind::PositionEmbedding, "position_embedding"},
    {ComputeKind::Scale, "scale"},
    {ComputeKind::RmsNorm, "rms_norm"},
    {ComputeKind::LayerNorm, "layer_norm"},
    {ComputeKind::HeadRmsNorm, "head_rms_norm"},
    {ComputeKind::Linear, "linear"},
    {ComputeKind::Rope, "rope"},
    {ComputeKind::Attention, "attention"},
    {ComputeKind::GatedActivation, "gated_activation"},
    {ComputeKind::Activation, "activation"},
    {ComputeKind::Add, "add"},
    {ComputeKind::Accumulate, "accumulate"},
    {ComputeKind::BiasAdd, "bias_add"},
    {ComputeKind::CrossEntropy, "cross_entropy"},
    {ComputeKind::CrossEntropyLocal, "cross_entropy_local"},
    {ComputeKind::CrossEntropyCombine, "cross_entropy_combine"},
    {ComputeKind::SumLoss, "sum_loss"},
    {ComputeKind::Router, "router"},
    {ComputeKind::DispatchPlan, "dispatch_plan"},
    {ComputeKind::ExchangeSizes, "exchange_sizes"},
    {ComputeKind::Dispatch, "dispatch"},
    {ComputeKind::RegroupRows, "regroup_rows"},
    {ComputeKind::GroupedLinear, "grouped_linear"},
    {ComputeKind::Combine, "combine"},
    {ComputeKind::SliceRows, "slice_rows"},
    {ComputeKind::SliceColumns, "slice_columns"},
    {ComputeKind::PackColumns, "pack_columns"},
    {ComputeKind::UnpackColumns, "unpack_columns"},
    {ComputeKind::KeyValues, "key_values"},
    {ComputeKind::OrderChunks, "order_chunks"},
    {ComputeKind::MergeAttention, "merge_attention"},
    {ComputeKind::Convert, "convert"},
    {ComputeKind::Slice, "slice"},
    {ComputeKind::LatentHeads, "latent_heads"},
    {ComputeKind::SigmoidGate, "sigmoid_gate"},
    {ComputeKind::Pool, "pool"},
    {ComputeKind::RouterLoad, "router_load"},
    {ComputeKind::SequenceLoad, "sequence_load"},
    {ComputeKind::RouterLosses, "router_losses"},
    {ComputeKind::LimitChoices, "limit_choices"},
    {ComputeKind::Quantize, "quantize"},
    {ComputeKind::ScaledLinear, "scaled_linear"},
};

std::string_view name_of(ComputeKind kind) {
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
    case ComputeKind::Activation:
    case ComputeKind::GatedActivation:
      return fmt::format(" {}", models::name_of_activation(a.activation));
    case ComputeKind::Rope:
      return fmt::format(" heads={} rotated={}", a.heads + a.kv_heads, a.rope_size);
    case ComputeKind::HeadRmsNorm:
      return fmt::format(" heads={} size={}", a.heads + a.kv_heads, a.head_size) +
             (a.rope_size > 0 ? fmt::format(" rotated={}", a.rope_size) : "");
    case ComputeKind::Quantize:
      return fmt::format(" {}{}{}", work.cast->gradient ? "e5m2" : "e4m3",
                         work.cast->rows ? " rows" : "", work.cast->columns ? " columns" : "");
    case ComputeKind::Attention:
    case ComputeKind::CrossEntropyLocal:
    case ComputeKind::CrossEntropy:
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
  if (op.work.kind == ComputeKind::ScaledLinear) return operation.inputs.size() > 4;
  if (operation.phase == Phase::WeightGrad) return operation.outputs.size() > 1;
  const std::size_t plain =
      op.work.kind == ComputeKind::GroupedLinear ? 3 : (op.work.adds_residual ? 3 : 2);
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
  const bool norm = op.work.kind == ComputeKind::RmsNorm || op.work.kind == ComputeKind::LayerNorm;
  const std::size_t plain_inputs = op.work.kind == ComputeKind::RmsNorm ? 4 : 5;
  return norm && op.operation.phase == Phase::InputGrad &&
         op.operation.inputs.size() > plain_inputs;
}

/// Marks work on more routed rows than a balanced router sends, for which operators are measured.
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

/// The shape that any other operation moves.
std::string elementwise_signature(const ComputeOperation& op) {
  // An embedding reads ids; what it moves is rows of the model's width.
  const bool lookup =
      op.work.kind == ComputeKind::Embedding && op.operation.phase == Phase::Forward;
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
    case ComputeKind::Linear:
    case ComputeKind::ScaledLinear:
      return linear_signature(op);
    case ComputeKind::GroupedLinear:
      return grouped_linear_signature(op);
    case ComputeKind::Attention:  // the gradient of its sinks reads o and do once
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
