// Names of compute operations by which measurements are found again.
#include <algorithm>
#include <fmt/compile.h>
#include <fmt/format.h>
#include <iterator>

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
    {ComputeKind::NodeChoices, "node_choices"},
    {ComputeKind::NodeRouting, "node_routing"},
    {ComputeKind::SumNodes, "sum_nodes"},
    {ComputeKind::PackRows, "pack_rows"},
    {ComputeKind::UnpackRows, "unpack_rows"},
    {ComputeKind::SliceRows, "slice_rows"},
    {ComputeKind::SliceColumns, "slice_columns"},
    {ComputeKind::PackColumns, "pack_columns"},
    {ComputeKind::UnpackColumns, "unpack_columns"},
    {ComputeKind::KeyValues, "key_values"},
    {ComputeKind::OrderChunks, "order_chunks"},
    {ComputeKind::MergeAttention, "merge_attention"},
    {ComputeKind::Convert, "convert"},
    {ComputeKind::Slice, "slice"},
    {ComputeKind::Concat, "concat"},
    {ComputeKind::LatentHeads, "latent_heads"},
    {ComputeKind::SigmoidGate, "sigmoid_gate"},
    {ComputeKind::Pool, "pool"},
    {ComputeKind::ShortConvolution, "short_convolution"},
    {ComputeKind::GatedNorm, "gated_norm"},
    {ComputeKind::LinearAttention, "linear_attention"},
    {ComputeKind::StateSpace, "state_space"},
    {ComputeKind::SelectKeys, "select_keys"},
    {ComputeKind::SparseAttention, "sparse_attention"},
    {ComputeKind::IndexerLoss, "indexer_loss"},
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

/// Adds to a text. A search names hundreds of thousands of operations: formats are compiled, and
/// nothing else is allocated.
template <class Format, class... Args>
void add(std::string& text, const Format& format, const Args&... args) {
  fmt::format_to(std::back_inserter(text), format, args...);
}

/// What besides its shape an operation's time depends on.
void add_attribute_flags(std::string& text, const ComputeOp& work) {
  const models::OpAttributes& a = work.attributes;
  switch (work.kind) {
    case ComputeKind::Activation:
    case ComputeKind::GatedActivation:
      return add(text, FMT_COMPILE(" {}"), models::name_of_activation(a.activation));
    case ComputeKind::Rope:
      return add(text, FMT_COMPILE(" heads={} rotated={}"), a.heads + a.kv_heads, a.rope_size);
    case ComputeKind::HeadRmsNorm:
      add(text, FMT_COMPILE(" heads={} size={}"), a.heads + a.kv_heads, a.head_size);
      if (a.rope_size > 0) add(text, FMT_COMPILE(" rotated={}"), a.rope_size);
      return;
    case ComputeKind::LinearAttention:
    case ComputeKind::StateSpace:
      return add(text, FMT_COMPILE(" heads={}:{} size={}:{} chunk={}"), a.heads, a.kv_heads,
                 a.head_size, a.value_head_size, a.chunk);
    case ComputeKind::SelectKeys:
    case ComputeKind::SparseAttention:
    case ComputeKind::IndexerLoss:
      return add(text, FMT_COMPILE(" heads={}:{} size={}:{} keys={}{}"), a.heads, a.kv_heads,
                 a.head_size, a.value_head_size, a.selected_keys, a.causal ? " causal" : "");
    case ComputeKind::GatedNorm:
      return add(text, FMT_COMPILE(" size={}{}"), a.norm_group, a.gate_first ? " first" : "");
    case ComputeKind::Quantize:
      text += work.cast->gradient ? " e5m2" : " e4m3";
      if (work.cast->rows) text += " rows";
      if (work.cast->columns) text += " columns";
      if (work.cast->largest) text += " largest";
      return;
    case ComputeKind::Attention:
    case ComputeKind::CrossEntropyLocal:
    case ComputeKind::CrossEntropy:
      if (a.softcap > 0) text += " softcap";
      return;
    default:
      return;
  }
}

/// "192", or "192:128" where value heads have another size.
void add_head_sizes(std::string& text, const models::OpAttributes& a) {
  add(text, FMT_COMPILE(" e={}"), a.head_size);
  if (a.value_head_size != a.head_size) add(text, FMT_COMPILE(":{}"), a.value_head_size);
}

bool has_bias(const ComputeOperation& op) {
  const Operation& operation = op.operation;
  if (op.work.kind == ComputeKind::ScaledLinear) return operation.inputs.size() > 4;
  if (operation.phase == Phase::WeightGrad) return operation.outputs.size() > 1;
  const std::size_t plain =
      op.work.kind == ComputeKind::GroupedLinear ? 3 : (op.work.adds_residual ? 3 : 2);
  return operation.phase != Phase::InputGrad && operation.inputs.size() > plain;
}

void add_linear(std::string& text, const ComputeOperation& op) {
  const LinearSizes sizes = op.linear_sizes();
  add(text, FMT_COMPILE(" t={} out={} in={}"), sizes.tokens, sizes.out, sizes.in);
  if (has_bias(op)) text += " bias";
  if (op.work.adds_residual) text += " residual";
  if (op.instance.accumulate) text += " accumulate";
  if (!op.work.fused_activation) return;
  // Whether it also keeps what the function reads makes a difference to what it writes.
  const bool keeps = op.operation.outputs.size() > 1;
  add(text, FMT_COMPILE(" {}{}"), models::name_of_activation(*op.work.fused_activation),
      keeps ? " aux" : "");
}

void add_grouped_linear(std::string& text, const ComputeOperation& op) {
  const LinearSizes sizes = op.linear_sizes();
  add(text, FMT_COMPILE(" t={} experts={} out={} in={}"), sizes.tokens, sizes.experts, sizes.out,
      sizes.in);
  if (has_bias(op)) text += " bias";
  if (op.instance.accumulate) text += " accumulate";
}

void add_document_attention(std::string& text, const ComputeOperation& op) {
  const std::vector<ValueId>& inputs = op.operation.inputs;
  const bool backward = op.operation.phase == Phase::InputGrad;
  const ValueId queries = inputs[backward ? 1 : 0];
  const AttentionInputs more = op.attention_inputs();
  const ValueId keys = more.keys_values.value_or(queries);
  const std::int64_t sequences = op.program.sizes.sequences;
  const auto rows = [&](ValueId id) {
    return local_shape(op.program, op.value(id)).front() / sequences;
  };
  add(text, FMT_COMPILE(" b={} s={} keys={} h={} k={}"), sequences, rows(queries), rows(keys),
      op.work.attributes.heads, op.work.attributes.kv_heads);
  add_head_sizes(text, op.work.attributes);
  add(text, FMT_COMPILE(" documents pairs={:.0f}"), op.document_pairs());
  if (more.sinks) text += " sinks";
  add_attribute_flags(text, op.work);
}

void add_attention(std::string& text, const ComputeOperation& op) {
  if (op.work.documents) return add_document_attention(text, op);
  const models::OpAttributes& a = op.work.attributes;
  const std::vector<AttentionTile> tiles = op.attention_tiles();
  const AttentionTile& last = tiles.back();
  add(text, FMT_COMPILE(" b={} s={} h={} k={}"), op.program.sizes.sequences, last.num_queries,
      a.heads, a.kv_heads);
  add_head_sizes(text, a);
  text += last.causal ? " causal" : " full";
  if (a.window > 0) add(text, FMT_COMPILE(" window={}"), a.window);
  if (tiles.size() > 1)
    add(text, FMT_COMPILE(" chunks={} keys={}"), tiles.size(), op.program.plan.workload.seq_len);
  else if (last.num_keys != last.num_queries)
    add(text, FMT_COMPILE(" keys={}"), last.num_keys);
  if (op.attention_inputs().sinks) text += " sinks";
  if (op.stores_score_gradient()) add(text, FMT_COMPILE(" {}"), kStoresScoreGradient);
  add_attribute_flags(text, op.work);
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
void add_imbalance_flag(std::string& text, const ComputeOperation& op) {
  if (op.sizes.routed_tokens <= balanced_rows(op.program.plan)) return;
  const auto routed = [&](ValueId id) {
    const std::vector<models::Dim>& shape = op.value(id).shape;
    return !shape.empty() && shape.front().symbol == models::Symbol::RoutedTokens;
  };
  if (std::ranges::none_of(op.operation.inputs, routed) &&
      std::ranges::none_of(op.operation.outputs, routed))
    return;
  add(text, FMT_COMPILE(" busiest=x{:g}"), op.program.plan.expected_expert_imbalance);
}

/// The shape that any other operation moves.
void add_elementwise(std::string& text, const ComputeOperation& op) {
  // An embedding reads ids; what it moves is rows of the model's width.
  const bool lookup = op.work.kind == ComputeKind::Embedding && op.is_forward();
  const ValueId moved = lookup ? op.operation.outputs[0] : op.operation.inputs[0];
  for (const models::Dim& dim : op.value(moved).shape)
    add(text, FMT_COMPILE(" {}"), models::evaluate(dim, op.program.sizes));
  if (adds_residual(op)) text += " residual";
  if (op.instance.accumulate) text += " accumulate";
  add_imbalance_flag(text, op);
  add_attribute_flags(text, op.work);
}

void add_shape(std::string& text, const ComputeOperation& op) {
  switch (op.work.kind) {
    case ComputeKind::Linear:
    case ComputeKind::ScaledLinear:
      return add_linear(text, op);
    case ComputeKind::GroupedLinear:
      return add_grouped_linear(text, op);
    case ComputeKind::Attention:  // the gradient of its sinks reads o and do once
      return op.operation.phase == Phase::WeightGrad ? add_elementwise(text, op)
                                                     : add_attention(text, op);
    default:
      return add_elementwise(text, op);
  }
}

}  // namespace

std::vector<std::string> compute_kinds() {
  std::vector<std::string> names;
  for (const auto& [kind, name] : kKindNames) names.emplace_back(name);
  return names;
}

void add_compute_signature(std::string& text, const ComputeOperation& op) {
  add(text, FMT_COMPILE("{}.{} {}"), name_of(op.work.kind), name_of(op.operation.phase),
      name_of(op.program.plan.workload.precision));
  add_shape(text, op);
}

}  // namespace meshplan::program
