#include "models/counts.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::models {
namespace {

const Tensor& tensor(const LayerGraph& layer, TensorId id) {
  return layer.tensors[at(id)];
}

std::int64_t elements(const Tensor& tensor, const SymbolValues& values) {
  std::int64_t product = 1;
  for (const Dim& dim : tensor.shape) product *= evaluate(dim, values);
  return product;
}

/// Keys of the average of `seq_len` queries that each see `window` at most (0: all before them).
/// Half a triangle is exact up to the diagonal, which the convention leaves out so that a window of
/// S equals no window.
double keys_of_span(bool causal, double s, double window, AttentionCount count) {
  const double w = window > 0 ? std::min(s, window) : s;
  if (!causal || count == AttentionCount::AllPairs) return w;
  return w - w * w / (2.0 * s);
}

/// Compressed keys stand beside those of the window, for the tokens before it.
double keys_per_query(const OpAttributes& attributes, std::int64_t seq_len, AttentionCount count) {
  double s = static_cast<double>(seq_len);
  if (attributes.chunk > 0) s = std::min(s, static_cast<double>(attributes.chunk));
  const double near = keys_of_span(attributes.causal, s, attributes.window, count);
  const double selected = attributes.selected_keys;
  if (attributes.compression == 0) return selected > 0 ? std::min(near, selected) : near;
  const double far = keys_of_span(attributes.causal, s, 0, count) / attributes.compression;
  return near + (selected > 0 ? std::min(far, selected) : far);
}

double attention_flops(const Op& op, const LayerGraph& layer, const SymbolValues& values,
                       double keys) {
  // The output holds one value head per query head: heads held here = its elements / value size.
  const auto values_out = static_cast<double>(elements(tensor(layer, op.outputs.front()), values));
  const double sizes = op.attributes.head_size + op.attributes.value_head_size;
  return 2.0 * values_out / op.attributes.value_head_size * sizes * keys;
}

/// Per element of the output and of the state that it reads.
double recurrence_flops(const Op& op, const LayerGraph& layer, const SymbolValues& values) {
  const double written = op.attributes.head_size *
                         static_cast<double>(elements(tensor(layer, op.outputs.front()), values));
  const bool reads_before_writing =
      op.attributes.linear_attention &&
      op.attributes.linear_attention->kind != LinearAttentionKind::Simple;
  return (reads_before_writing ? 6.0 : 4.0) * written;
}

double convolution_flops(const Op& op, const LayerGraph& layer, const SymbolValues& values) {
  const Tensor& out = tensor(layer, op.outputs.front());
  const auto tokens = static_cast<double>(evaluate(out.shape.front(), values));
  return 2.0 * tokens * static_cast<double>(elements(tensor(layer, op.parameters.front()), values));
}

/// Scores of the indexer: every key that a query may see.
double selection_flops(const Op& op, const LayerGraph& layer, const SymbolValues& values,
                       std::int64_t seq_len, AttentionCount count) {
  const Tensor& queries = tensor(layer, op.inputs.front());
  const double keys = keys_of_span(true, static_cast<double>(seq_len), 0, count) /
                      std::max(1, op.attributes.compression);
  return 2.0 * static_cast<double>(elements(queries, values)) * keys;
}

/// Product of the rows of x with a weight of (out, in): 2 * rows * out * in.
double product_flops(const Op& op, const LayerGraph& layer, const SymbolValues& values) {
  const Tensor& x = tensor(layer, op.inputs.front());
  const Tensor& weight = tensor(layer, op.parameters.front());
  const auto rows = static_cast<double>(evaluate(x.shape.front(), values));
  const auto out = static_cast<double>(evaluate(weight.shape[weight.shape.size() - 2], values));
  return 2.0 * rows * out * static_cast<double>(evaluate(weight.shape.back(), values));
}

int top_k_of(const LayerGraph& layer) {
  for (const Op& op : layer.ops)
    if (op.kind == OpKind::Router) return op.attributes.top_k;
  return 0;
}

/// Parameters that one token uses: all, but of a layer's experts only top_k.
std::int64_t active_parameters(const LayerGraph& layer) {
  const int top_k = top_k_of(layer);
  std::int64_t sum = 0;
  for (const Op& op : layer.ops)
    for (const TensorId id : op.parameters) {
      const std::int64_t size = elements(tensor(layer, id), {});
      sum += op.kind == OpKind::GroupedLinear ? size / op.attributes.num_experts * top_k : size;
    }
  return sum;
}

const Op* find_op(const LayerGraph& layer, std::string_view name) {
  const auto found = std::ranges::find(layer.ops, name, &Op::name);
  return found == layer.ops.end() ? nullptr : &*found;
}

}  // namespace

std::int64_t parameter_count(const LayerGraph& layer, const SymbolValues& values) {
  std::int64_t sum = 0;
  for (const Tensor& tensor : layer.tensors)
    if (tensor.tensor_class == TensorClass::Parameter) sum += elements(tensor, values);
  return sum;
}

ParameterCounts count_parameters(const ModelGraph& graph) {
  ParameterCounts counts;
  for (const Op& op : graph.embedding.ops)
    if (op.kind == OpKind::Embedding || op.kind == OpKind::PositionEmbedding)
      counts.embedding += elements(tensor(graph.embedding, op.parameters.front()), {});
  counts.total = parameter_count(graph.embedding) + parameter_count(graph.head);
  if (graph.tied_embeddings)
    counts.total -=
        elements(tensor(graph.head, find_op(graph.head, "lm_head")->parameters.front()), {});
  counts.active = counts.total;
  for (const int kind : graph.layer_kind) {
    const LayerGraph& layer = graph.kinds[static_cast<std::size_t>(kind)];
    counts.total += parameter_count(layer);
    counts.active += active_parameters(layer);
  }
  for (const LayerGraph& layer : graph.mtp) counts.mtp += parameter_count(layer);
  if (graph.vision)
    counts.vision = parameter_count(graph.vision->patches) +
                    graph.vision->layers * parameter_count(graph.vision->block) +
                    graph.vision->projectors * parameter_count(graph.vision->projector);
  return counts;
}

Flops forward_flops(const Op& op, const LayerGraph& layer, const SymbolValues& values,
                    std::int64_t seq_len, AttentionCount count) {
  switch (op.kind) {
    case OpKind::Linear:
    case OpKind::GroupedLinear:
    case OpKind::Router:
    case OpKind::GroupedOutput:
      return {product_flops(op, layer, values)};
    case OpKind::Attention:
    case OpKind::LatentAttention:
      return {attention_flops(op, layer, values, keys_per_query(op.attributes, seq_len, count))};
    case OpKind::SelectKeys:
      return {selection_flops(op, layer, values, seq_len, count)};
    case OpKind::LinearAttention:
    case OpKind::StateSpace:
      return {recurrence_flops(op, layer, values)};
    case OpKind::ShortConvolution:
      return {convolution_flops(op, layer, values)};
    default:
      return {0.0};
  }
}

Flops training_flops(const Op& op, const LayerGraph& layer, const SymbolValues& values,
                     std::int64_t seq_len, AttentionCount count) {
  return 3.0 * forward_flops(op, layer, values, seq_len, count);
}

Flops forward_flops(const LayerGraph& layer, const SymbolValues& values, std::int64_t seq_len,
                    AttentionCount count) {
  Flops sum;
  for (const Op& op : layer.ops) sum += forward_flops(op, layer, values, seq_len, count);
  return sum;
}

Flops image_flops(const VisionGraph& vision) {
  const std::int64_t patches = vision.image_patches;
  const SymbolValues image{.tokens = patches, .sequences = 1};
  const SymbolValues merged{.tokens = std::max<std::int64_t>(1, patches / vision.patches_per_token),
                            .sequences = 1};
  return forward_flops(vision.patches, image, patches) +
         static_cast<double>(vision.layers) * forward_flops(vision.block, image, patches) +
         static_cast<double>(vision.projectors) *
             forward_flops(vision.projector, merged, merged.tokens);
}

Flops model_flops_per_token(const ModelGraph& graph, std::int64_t seq_len, AttentionCount count) {
  require_invariant(seq_len > 0, "FLOPs per token need a sequence length of at least 1");
  const auto forward = [&](const LayerGraph& layer) {
    const SymbolValues one_sequence{
        .tokens = seq_len, .sequences = 1, .routed_tokens = seq_len * top_k_of(layer)};
    return forward_flops(layer, one_sequence, seq_len, count);
  };
  Flops sum = forward(graph.embedding) + forward(graph.head);
  for (const int kind : graph.layer_kind)
    sum += forward(graph.kinds[static_cast<std::size_t>(kind)]);
  for (const LayerGraph& module : graph.mtp) sum += forward(module) + forward(graph.head);
  if (graph.vision) sum += graph.vision->images_per_sequence * image_flops(*graph.vision);
  return 3.0 / static_cast<double>(seq_len) * sum;
}

}  // namespace meshplan::models
