// Attention to some keys alone: DeepSeek-V3.2's indexer, and the compressed keys of DeepSeek-V4.
#include <algorithm>
#include <cmath>

#include "layer_builder.hpp"

namespace meshplan::models {
namespace {

struct IndexerShape {
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  int top_k = 0;
  int compression = 0;
};

/// Rotates the first elements of each of the indexer's heads, as many as of attention's.
TensorId append_index_rope(LayerBuilder& layer, const std::string& name, int heads,
                           std::int64_t head_size, TensorId x) {
  const std::vector<Dim> shape{layer.rows(x), fixed(layer.width(x))};
  Op& op = layer.op(OpKind::Rope, name, {x});
  op.attributes.heads = heads;
  op.attributes.head_size = static_cast<int>(head_size);
  set_rope(layer.spec(), Mixer::Full, op.attributes);
  op.attributes.rope_size = std::min(op.attributes.rope_size, op.attributes.head_size);
  return layer.output(op, shape);
}

/// Queries and head weights beside keys that are there already. What they read is a constant to
/// them (DeepSeek-V3.2, section 2.1: the indexer's input is detached).
TensorId append_selection(LayerBuilder& layer, const IndexerShape& shape, TensorId low, TensorId x,
                          TensorId keys) {
  TensorId queries = layer.linear({.name = "index_q",
                                   .weight = "self_attn.indexer.wq_b",
                                   .out = shape.heads * shape.head_size,
                                   .detached = true},
                                  low);
  const TensorId weights = layer.linear({.name = "index_weights",
                                         .weight = "self_attn.indexer.weights_proj",
                                         .out = shape.heads,
                                         .detached = true},
                                        x);
  if (shape.compression == 0 && layer.spec().positions == Positions::Rope) {
    queries = append_index_rope(layer, "index_q_rope", static_cast<int>(shape.heads),
                                shape.head_size, queries);
    keys = append_index_rope(layer, "index_k_rope", 1, shape.head_size, keys);
  }
  const Dim row_count = layer.rows(x);
  Op& select = layer.op(OpKind::SelectKeys, "select_keys", {queries, keys, weights});
  select.attributes.heads = static_cast<int>(shape.heads);
  select.attributes.kv_heads = 1;
  select.attributes.head_size = static_cast<int>(shape.head_size);
  select.attributes.selected_keys = shape.top_k;
  select.attributes.compression = shape.compression;
  select.attributes.causal = layer.spec().causal;
  select.attributes.scale = 1.0 / std::sqrt(static_cast<double>(shape.heads * shape.head_size));
  const TensorId choices =
      layer.tensor("select_keys", TensorClass::Index, {row_count, fixed(shape.top_k)});
  select.outputs.push_back(choices);
  return choices;
}

/// Keys of `ratio` tokens each, weighed by scores of their own; where they overlap a token counts
/// in two of them.
TensorId append_compressor(LayerBuilder& layer, const std::string& name, std::int64_t head_size,
                           int ratio, bool overlaps, TensorId x) {
  const std::int64_t width = head_size * (overlaps ? 2 : 1);
  const TensorId kv =
      layer.linear({.name = name + "_kv", .weight = "self_attn." + name + ".wkv", .out = width}, x);
  const TensorId gate = layer.linear(
      {.name = name + "_gate", .weight = "self_attn." + name + ".wgate", .out = width}, x);
  const Dim row_count = layer.rows(x);
  Op& op = layer.op(OpKind::CompressKeys, name, {kv, gate});
  op.attributes.compression = ratio;
  op.attributes.head_size = static_cast<int>(head_size);
  op.parameters = {
      layer.parameter("self_attn." + name + ".ape", {fixed(ratio), fixed(width)}, Init::Normal),
      layer.parameter("self_attn." + name + ".norm.weight", {fixed(head_size)}, Init::Ones)};
  return layer.output(op, {row_count, fixed(head_size)});
}

/// Heads in groups, each group through a low rank of its own.
TensorId append_grouped_output(LayerBuilder& layer, TensorId heads) {
  const CompressedAttentionSpec& own = *layer.spec().compressed_attention;
  const std::int64_t groups = own.output_groups;
  const std::int64_t in = layer.width(heads) / groups;
  const Dim row_count = layer.rows(heads);
  Op& op = layer.op(OpKind::GroupedOutput, "output_low", {heads});
  op.split = Split::Column;
  op.parameters = {layer.parameter(
      "self_attn.wo_a.weight", {fixed(groups * own.output_lora_rank), fixed(in)}, Init::Normal)};
  const TensorId low = layer.output(op, {row_count, fixed(groups * own.output_lora_rank)});
  return append_output_projection(layer, low, "self_attn.wo_b");
}

}  // namespace

TensorId append_indexer(LayerBuilder& layer, TensorId low, TensorId x) {
  const SparseAttentionSpec& sparse = *layer.spec().sparse_attention;
  if (sparse.borrowed)
    return layer.tensor("select_keys", TensorClass::Index, {layer.rows(x), fixed(sparse.top_k)});
  const TensorId k = layer.linear({.name = "index_k",
                                   .weight = "self_attn.indexer.wk",
                                   .out = sparse.index_head_size,
                                   .detached = true},
                                  x);
  // A layer norm, whatever the model's norms are.
  const std::vector<Dim> shape{layer.rows(k), fixed(sparse.index_head_size)};
  Op& norm = layer.op(OpKind::LayerNorm, "index_k_norm", {k});
  norm.attributes.epsilon = 1e-6;
  norm.parameters = {layer.parameter("self_attn.indexer.k_norm.weight", {shape.back()}, Init::Ones),
                     layer.parameter("self_attn.indexer.k_norm.bias", {shape.back()}, Init::Zeros)};
  const TensorId keys = layer.output(norm, shape);
  layer.statistic(norm, "mean", {shape.front()});
  layer.statistic(norm, "inv_std", {shape.front()});
  return append_selection(
      layer,
      {.heads = sparse.index_heads, .head_size = sparse.index_head_size, .top_k = sparse.top_k},
      low, x, keys);
}

TensorId append_compressed_attention(LayerBuilder& layer, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const CompressedAttentionSpec& own = *spec.compressed_attention;
  const int ratio = own.ratios.front();
  const bool indexed = ratio == own.index_ratio;
  const std::int64_t q_width = std::int64_t{spec.num_heads} * spec.head_size;
  const TensorId q_low = layer.norm(
      "q_low_norm", "self_attn.q_norm",
      layer.linear({.name = "q_down", .weight = "self_attn.wq_a", .out = own.q_lora_rank}, x));
  const TensorId q = layer.linear(
      {.name = "q_up", .weight = "self_attn.wq_b", .out = q_width, .split = Split::Column}, q_low);
  const TensorId kv =
      layer.norm("kv_norm", "self_attn.kv_norm",
                 layer.linear({.name = "kv", .weight = "self_attn.wkv", .out = spec.head_size}, x));
  std::vector<TensorId> inputs{q, kv};
  if (ratio > 0)
    inputs.push_back(append_compressor(layer, "compressor", spec.head_size, ratio, indexed, x));
  if (indexed) {
    const TensorId keys =
        append_compressor(layer, "indexer.compressor", own.index_head_size, ratio, true, x);
    inputs.push_back(append_selection(layer,
                                      {.heads = own.index_heads,
                                       .head_size = own.index_head_size,
                                       .top_k = own.index_top_k,
                                       .compression = ratio},
                                      q_low, x, keys));
  }
  const Dim row_count = layer.rows(x);
  Op& attention = layer.op(OpKind::Attention, "attention", std::move(inputs));
  attention.modules.add(Module::Attention);
  OpAttributes& attributes = attention.attributes;
  attributes.heads = spec.num_heads;
  attributes.kv_heads = 1;
  attributes.head_size = attributes.value_head_size = spec.head_size;
  attributes.window = spec.window;
  attributes.compression = ratio;
  attributes.selected_keys = indexed ? own.index_top_k : 0;
  attributes.scale = 1.0 / std::sqrt(static_cast<double>(spec.head_size));
  if (spec.attention_sinks)
    attention.parameters.push_back(
        layer.parameter("self_attn.sinks", {fixed(spec.num_heads)}, Init::Zeros));
  const TensorId heads = layer.output(attention, {row_count, fixed(q_width)});
  layer.statistic(attention, "lse", {row_count, fixed(spec.num_heads)});
  return append_grouped_output(layer, heads);
}

}  // namespace meshplan::models
