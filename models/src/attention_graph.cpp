#include <cmath>

#include "layer_builder.hpp"
#include "models/rope_scaling.hpp"

namespace meshplan::models {
namespace {

double score_scale(const ModelSpec& spec) {
  if (spec.attention_scale) return *spec.attention_scale;
  const double scale = 1.0 / std::sqrt(static_cast<double>(spec.head_size));
  return spec.mla ? scale * rope_latent_score_factor(spec.rope_scaling) : scale;
}

int value_size(const ModelSpec& spec) {
  return spec.value_head_size.value_or(spec.head_size);
}

void set_heads(const ModelSpec& spec, OpAttributes& attributes) {
  attributes.heads = spec.num_heads;
  attributes.kv_heads = spec.num_kv_heads;
  attributes.head_size = spec.head_size;
  attributes.value_head_size = spec.mla ? spec.mla->v_head_size : value_size(spec);
}

void set_scores(const ModelSpec& spec, Mixer mixer, OpAttributes& attributes) {
  attributes.causal = spec.causal;
  attributes.window = mixer == Mixer::Sliding ? spec.window : 0;
  attributes.chunk = mixer == Mixer::Chunked ? spec.window : 0;
  attributes.alibi = spec.positions == Positions::Alibi;
  attributes.scale = score_scale(spec);
  attributes.softcap = spec.attention_softcap.value_or(0.0);
}

/// Weights of the norms, by what they norm together.
std::vector<std::int64_t> sizes_of_qk_norm(const ModelSpec& spec) {
  const std::int64_t head = spec.head_size;
  switch (spec.qk_norm_over) {
    case QkNorm::Head:
      return {head, head};
    case QkNorm::Projection:
    case QkNorm::EachHead:
      return {spec.num_heads * head, spec.num_kv_heads * head};
    case QkNorm::Unweighted:
      break;
  }
  return {};
}

/// Norms of the query and key heads inside the fused qkv.
TensorId append_qk_norm(LayerBuilder& layer, TensorId qkv,
                        const std::vector<std::int64_t>& sections) {
  const ModelSpec& spec = layer.spec();
  const std::vector<Dim> shape{layer.rows(qkv), fixed(layer.width(qkv))};
  Op& op = layer.op(OpKind::HeadRmsNorm, "qk_norm", {qkv});
  set_heads(spec, op.attributes);
  op.attributes.epsilon = spec.norm_epsilon;
  std::vector<std::int64_t> sizes = sizes_of_qk_norm(spec);
  if (spec.borrows_keys && !sizes.empty()) sizes.pop_back();
  constexpr const char* kNames[] = {"self_attn.q_norm.weight", "self_attn.k_norm.weight"};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    op.parameters.push_back(layer.parameter(kNames[i], {fixed(sizes[i])}, Init::Ones));
  const TensorId normed = layer.output(op, shape, sections, spec.head_size);
  const TensorId inv_rms =
      layer.statistic(op, "inv_rms", {shape.front(), fixed(spec.num_heads + spec.num_kv_heads)});
  layer.set_sections(inv_rms, {spec.num_heads, spec.num_kv_heads}, 1);
  return normed;
}

TensorId append_rope(LayerBuilder& layer, Mixer mixer, TensorId qkv,
                     const std::vector<std::int64_t>& sections) {
  const std::vector<Dim> shape{layer.rows(qkv), fixed(layer.width(qkv))};
  Op& op = layer.op(OpKind::Rope, "rope", {qkv});
  set_heads(layer.spec(), op.attributes);
  set_rope(layer.spec(), mixer, op.attributes);
  return layer.output(op, shape, sections, layer.spec().head_size);
}

TensorId append_scores(LayerBuilder& layer, Mixer mixer, TensorId qkv,
                       std::optional<TensorId> choices) {
  const ModelSpec& spec = layer.spec();
  const Dim row_count = layer.rows(qkv);
  Op& op = layer.op(OpKind::Attention, "attention", {qkv});
  op.modules.add(Module::Attention);
  set_heads(spec, op.attributes);
  set_scores(spec, mixer, op.attributes);
  if (!spec.causal) op.inputs.push_back(layer.tensor("lengths", TensorClass::Index, {sequences()}));
  if (choices) {
    op.inputs.push_back(*choices);
    op.attributes.selected_keys = spec.sparse_attention->top_k;
  }
  if (spec.attention_sinks)
    op.parameters.push_back(
        layer.parameter("self_attn.sinks", {fixed(spec.num_heads)}, Init::Zeros));
  const std::int64_t width = std::int64_t{spec.num_heads} * value_size(spec);
  const TensorId out = layer.output(op, {row_count, fixed(width)});
  layer.statistic(op, "lse", {row_count, fixed(spec.num_heads)});
  return out;
}

struct LatentQueries {
  TensorId heads = 0;           // (T, H E)
  std::optional<TensorId> low;  // (T, rank), normed, where they are compressed
};

/// Queries of MLA, compressed through a low rank where the spec says so.
LatentQueries append_latent_queries(LayerBuilder& layer, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const std::int64_t width = std::int64_t{spec.num_heads} * spec.head_size;
  if (!spec.mla->q_lora_rank) {
    const ModuleScope up(layer, Module::MlaUpProj);
    return {
        .heads = layer.linear(
            {.name = "q_up", .weight = "self_attn.q_proj", .out = width, .split = Split::Column},
            x),
        .low = {}};
  }
  const TensorId low = layer.linear({.name = "q_down",
                                     .weight = "self_attn.q_a_proj",
                                     .out = *spec.mla->q_lora_rank,
                                     .bias = spec.qkv_bias},
                                    x);
  const TensorId normed =
      layer.norm("q_low_norm", "self_attn.q_a_layernorm", low, spec.mla->norm_epsilon);
  const ModuleScope up(layer, Module::MlaUpProj);
  return {
      .heads = layer.linear(
          {.name = "q_up", .weight = "self_attn.q_b_proj", .out = width, .split = Split::Column},
          normed),
      .low = normed};
}

}  // namespace

void set_rope(const ModelSpec& spec, Mixer mixer, OpAttributes& attributes) {
  const bool local = mixer == Mixer::Sliding && spec.local_rope_base;
  attributes.rope_base = local ? *spec.local_rope_base : spec.rope_base;
  if (!local && spec.rope_scaling) {
    attributes.rope_scaling = spec.rope_scaling;
    attributes.rope_scaling->original_max_positions =
        spec.rope_scaling->original_max_positions.value_or(spec.max_positions);
  }
  attributes.rope_size =
      spec.mla ? spec.mla->qk_rope_head_size : spec.rope_size.value_or(spec.head_size);
}

TensorId append_output_projection(LayerBuilder& layer, TensorId heads, const char* weight) {
  return layer.linear({.name = "attention_out",
                       .weight = weight,
                       .out = layer.spec().hidden_size,
                       .split = Split::Row,
                       .bias = layer.spec().attention_out_bias,
                       .init = Init::ScaledNormal},
                      heads);
}

TensorId append_low_rank(LayerBuilder& layer, const std::string& name, const std::string& weight,
                         std::optional<int> rank, std::int64_t out, TensorId x) {
  if (!rank)
    return layer.linear(
        {.name = name, .weight = weight + "_proj", .out = out, .split = Split::Column}, x);
  const TensorId low =
      layer.linear({.name = name + "_down", .weight = weight + "_a_proj", .out = *rank}, x);
  return layer.linear(
      {.name = name, .weight = weight + "_b_proj", .out = out, .split = Split::Column}, low);
}

TensorId append_output_gate(LayerBuilder& layer, TensorId heads, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const std::int64_t width = layer.width(heads);
  const std::int64_t gates =
      spec.attention_gate == AttentionGate::Head ? std::int64_t{spec.num_heads} : width;
  // Hugging Face keeps these rows inside q_proj; apart, the qkv weight stays {q, kv, kv}.
  const TensorId gate = layer.linear({.name = "attention_gate",
                                      .weight = "self_attn.gate_proj",
                                      .out = gates,
                                      .split = Split::Column,
                                      .bias = spec.qkv_bias},
                                     x);
  const std::vector<Dim> shape{layer.rows(heads), fixed(width)};
  return layer.output(layer.op(OpKind::SigmoidGate, "gated_attention", {heads, gate}), shape);
}

TensorId append_projection(LayerBuilder& layer, const std::string& weight, TensorId x) {
  return layer.linear({.name = "projection",
                       .weight = weight,
                       .out = layer.spec().hidden_size,
                       .init = Init::ScaledNormal},
                      x);
}

TensorId append_attention(LayerBuilder& layer, Mixer mixer, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const std::int64_t q = std::int64_t{spec.num_heads} * spec.head_size;
  const std::int64_t k = std::int64_t{spec.num_kv_heads} * spec.head_size;
  const std::int64_t v = std::int64_t{spec.num_kv_heads} * value_size(spec);
  std::vector<std::int64_t> sections{q};
  if (!spec.borrows_keys) sections.push_back(k);
  if (!spec.borrows_keys && !spec.keys_are_values) sections.push_back(v);
  std::int64_t width = 0;
  for (const std::int64_t section : sections) width += section;
  TensorId qkv = layer.linear({.name = "qkv",
                               .weight = "self_attn.qkv_proj",
                               .out = width,
                               .split = Split::Column,
                               .bias = spec.qkv_bias,
                               .sections = sections,
                               .head_size = spec.head_size},
                              x);
  if (spec.qk_norm) qkv = append_qk_norm(layer, qkv, sections);
  if (spec.positions == Positions::Rope) qkv = append_rope(layer, mixer, qkv, sections);
  std::optional<TensorId> choices;
  if (spec.sparse_attention) choices = append_indexer(layer, x, x);
  TensorId heads = append_scores(layer, mixer, qkv, choices);
  if (spec.attention_output_gate) heads = append_output_gate(layer, heads, x);
  return append_output_projection(layer, heads, "self_attn.o_proj");
}

TensorId append_latent_attention(LayerBuilder& layer, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const MlaSpec& mla = *spec.mla;
  const Dim row_count = layer.rows(x);
  const std::int64_t heads = spec.num_heads;

  const LatentQueries queries = append_latent_queries(layer, x);
  TensorId q = queries.heads;
  const std::vector<std::int64_t> parts{mla.kv_lora_rank, mla.qk_rope_head_size};
  const TensorId down = layer.linear({.name = "kv_down",
                                      .weight = "self_attn.kv_a_proj_with_mqa",
                                      .out = parts[0] + parts[1],
                                      .bias = spec.qkv_bias,
                                      .sections = parts},
                                     x);
  Op& slice = layer.op(OpKind::Slice, "kv_low", {down});
  const TensorId kv_low = layer.output(slice, {row_count, fixed(parts[0])});
  TensorId k_rope = layer.tensor("k_rope", TensorClass::Activation, {row_count, fixed(parts[1])});
  slice.outputs.push_back(k_rope);
  const TensorId normed =
      layer.norm("kv_low_norm", "self_attn.kv_a_layernorm", kv_low, mla.norm_epsilon);
  std::optional<ModuleScope> up(std::in_place, layer, Module::MlaUpProj);
  const TensorId kv = layer.linear({.name = "kv_up",
                                    .weight = "self_attn.kv_b_proj",
                                    .out = heads * (mla.qk_nope_head_size + mla.v_head_size),
                                    .split = Split::Column},
                                   normed);
  if (spec.positions == Positions::Rope) {
    const std::int64_t q_width = layer.width(q);
    Op& rope = layer.op(OpKind::Rope, "rope", {q, k_rope});
    set_heads(spec, rope.attributes);
    set_rope(spec, Mixer::Full, rope.attributes);
    q = layer.output(rope, {row_count, fixed(q_width)});
    k_rope = layer.tensor("rope.k", TensorClass::Activation, {row_count, fixed(parts[1])});
    rope.outputs.push_back(k_rope);
  }
  up.reset();

  std::optional<TensorId> choices;
  if (spec.sparse_attention && queries.low) choices = append_indexer(layer, *queries.low, x);
  Op& attention = layer.op(OpKind::LatentAttention, "attention", {q, kv, k_rope});
  attention.modules.add(Module::Attention);
  if (choices) {
    attention.inputs.push_back(*choices);
    attention.attributes.selected_keys = spec.sparse_attention->top_k;
  }
  set_heads(spec, attention.attributes);
  set_scores(spec, Mixer::Full, attention.attributes);
  const TensorId out = layer.output(attention, {row_count, fixed(heads * mla.v_head_size)});
  layer.statistic(attention, "lse", {row_count, fixed(heads)});
  const TensorId gated = spec.attention_output_gate ? append_output_gate(layer, out, x) : out;
  return append_output_projection(layer, gated, "self_attn.o_proj");
}

}  // namespace meshplan::models
