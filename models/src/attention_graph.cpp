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

void set_heads(const ModelSpec& spec, OpAttributes& attributes) {
  attributes.heads = spec.num_heads;
  attributes.kv_heads = spec.num_kv_heads;
  attributes.head_size = spec.head_size;
  attributes.value_head_size = spec.mla ? spec.mla->v_head_size : spec.head_size;
}

void set_rope(const ModelSpec& spec, LayerAttention kind, OpAttributes& attributes) {
  const bool local = kind == LayerAttention::Sliding && spec.local_rope_base;
  attributes.rope_base = local ? *spec.local_rope_base : spec.rope_base;
  if (!local && spec.rope_scaling) {
    attributes.rope_scaling = spec.rope_scaling;
    attributes.rope_scaling->original_max_positions =
        spec.rope_scaling->original_max_positions.value_or(spec.max_positions);
  }
  attributes.rope_size =
      spec.mla ? spec.mla->qk_rope_head_size : spec.rope_size.value_or(spec.head_size);
}

void set_scores(const ModelSpec& spec, LayerAttention kind, OpAttributes& attributes) {
  attributes.causal = spec.causal;
  attributes.window = kind == LayerAttention::Sliding ? spec.window : 0;
  attributes.scale = score_scale(spec);
  attributes.softcap = spec.attention_softcap.value_or(0.0);
}

/// Norms of the query and key heads inside the fused qkv.
TensorId append_qk_norm(LayerBuilder& layer, TensorId qkv,
                        const std::vector<std::int64_t>& sections) {
  const ModelSpec& spec = layer.spec();
  const std::vector<Dim> shape{layer.rows(qkv), fixed(layer.width(qkv))};
  Op& op = layer.op(OpKind::HeadRmsNorm, "qk_norm", {qkv});
  set_heads(spec, op.attributes);
  op.attributes.epsilon = spec.norm_epsilon;
  op.parameters = {layer.parameter("self_attn.q_norm.weight", {fixed(spec.head_size)}, Init::Ones),
                   layer.parameter("self_attn.k_norm.weight", {fixed(spec.head_size)}, Init::Ones)};
  const TensorId normed = layer.output(op, shape, sections, spec.head_size);
  const TensorId inv_rms =
      layer.statistic(op, "inv_rms", {shape.front(), fixed(spec.num_heads + spec.num_kv_heads)});
  layer.set_sections(inv_rms, {spec.num_heads, spec.num_kv_heads}, 1);
  return normed;
}

TensorId append_rope(LayerBuilder& layer, LayerAttention kind, TensorId qkv,
                     const std::vector<std::int64_t>& sections) {
  const std::vector<Dim> shape{layer.rows(qkv), fixed(layer.width(qkv))};
  Op& op = layer.op(OpKind::Rope, "rope", {qkv});
  set_heads(layer.spec(), op.attributes);
  set_rope(layer.spec(), kind, op.attributes);
  return layer.output(op, shape, sections, layer.spec().head_size);
}

TensorId append_scores(LayerBuilder& layer, LayerAttention kind, TensorId qkv) {
  const ModelSpec& spec = layer.spec();
  const Dim row_count = layer.rows(qkv);
  Op& op = layer.op(OpKind::Attention, "attention", {qkv});
  op.modules.add(Module::Attention);
  set_heads(spec, op.attributes);
  set_scores(spec, kind, op.attributes);
  if (!spec.causal) op.inputs.push_back(layer.tensor("lengths", TensorClass::Index, {sequences()}));
  if (spec.attention_sinks)
    op.parameters.push_back(
        layer.parameter("self_attn.sinks", {fixed(spec.num_heads)}, Init::Zeros));
  const std::int64_t width = std::int64_t{spec.num_heads} * spec.head_size;
  const TensorId out = layer.output(op, {row_count, fixed(width)});
  layer.statistic(op, "lse", {row_count, fixed(spec.num_heads)});
  return out;
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

/// Queries of MLA, compressed through a low rank where the spec says so: (T, H E).
TensorId append_latent_queries(LayerBuilder& layer, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const std::int64_t width = std::int64_t{spec.num_heads} * spec.head_size;
  if (!spec.mla->q_lora_rank) {
    const ModuleScope up(layer, Module::MlaUpProj);
    return layer.linear(
        {.name = "q_up", .weight = "self_attn.q_proj", .out = width, .split = Split::Column}, x);
  }
  const TensorId low = layer.linear({.name = "q_down",
                                     .weight = "self_attn.q_a_proj",
                                     .out = *spec.mla->q_lora_rank,
                                     .bias = spec.qkv_bias},
                                    x);
  const TensorId normed =
      layer.norm("q_low_norm", "self_attn.q_a_layernorm", low, spec.mla->norm_epsilon);
  const ModuleScope up(layer, Module::MlaUpProj);
  return layer.linear(
      {.name = "q_up", .weight = "self_attn.q_b_proj", .out = width, .split = Split::Column},
      normed);
}

}  // namespace

TensorId append_attention(LayerBuilder& layer, LayerAttention kind, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const std::int64_t q = std::int64_t{spec.num_heads} * spec.head_size;
  const std::int64_t kv = std::int64_t{spec.num_kv_heads} * spec.head_size;
  const std::vector<std::int64_t> sections{q, kv, kv};
  TensorId qkv = layer.linear({.name = "qkv",
                               .weight = "self_attn.qkv_proj",
                               .out = q + 2 * kv,
                               .split = Split::Column,
                               .bias = spec.qkv_bias,
                               .sections = sections,
                               .head_size = spec.head_size},
                              x);
  if (spec.qk_norm) qkv = append_qk_norm(layer, qkv, sections);
  if (spec.positions == Positions::Rope) qkv = append_rope(layer, kind, qkv, sections);
  TensorId heads = append_scores(layer, kind, qkv);
  if (spec.attention_output_gate) {
    // Hugging Face keeps these rows inside q_proj; apart, the qkv weight stays {q, kv, kv}.
    const TensorId gate = layer.linear({.name = "attention_gate",
                                        .weight = "self_attn.gate_proj",
                                        .out = q,
                                        .split = Split::Column,
                                        .bias = spec.qkv_bias},
                                       x);
    const std::vector<Dim> shape{layer.rows(heads), fixed(q)};
    heads = layer.output(layer.op(OpKind::SigmoidGate, "gated_attention", {heads, gate}), shape);
  }
  return append_output_projection(layer, heads, "self_attn.o_proj");
}

TensorId append_latent_attention(LayerBuilder& layer, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const MlaSpec& mla = *spec.mla;
  const Dim row_count = layer.rows(x);
  const std::int64_t heads = spec.num_heads;

  TensorId q = append_latent_queries(layer, x);
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
    set_rope(spec, LayerAttention::Full, rope.attributes);
    q = layer.output(rope, {row_count, fixed(q_width)});
    k_rope = layer.tensor("rope.k", TensorClass::Activation, {row_count, fixed(parts[1])});
    rope.outputs.push_back(k_rope);
  }
  up.reset();

  Op& attention = layer.op(OpKind::LatentAttention, "attention", {q, kv, k_rope});
  attention.modules.add(Module::Attention);
  set_heads(spec, attention.attributes);
  set_scores(spec, LayerAttention::Full, attention.attributes);
  const TensorId out = layer.output(attention, {row_count, fixed(heads * mla.v_head_size)});
  layer.statistic(attention, "lse", {row_count, fixed(heads)});
  return append_output_projection(layer, out, "self_attn.o_proj");
}

TensorId append_linear_attention(LayerBuilder& layer, TensorId x) {
  const LinearAttentionSpec& linear = *layer.spec().linear_attention;
  const Dim row_count = layer.rows(x);
  const std::int64_t key = std::int64_t{linear.num_key_heads} * linear.key_head_size;
  const std::int64_t value = std::int64_t{linear.num_value_heads} * linear.value_head_size;

  const TensorId qkvz = layer.linear({.name = "linear_qkvz",
                                      .weight = "linear_attn.in_proj_qkvz",
                                      .out = 2 * key + 2 * value,
                                      .split = Split::Column,
                                      .sections = {key, key, value, value}},
                                     x);
  const TensorId ba = layer.linear({.name = "linear_ba",
                                    .weight = "linear_attn.in_proj_ba",
                                    .out = 2 * std::int64_t{linear.num_value_heads},
                                    .split = Split::Column,
                                    .sections = {linear.num_value_heads, linear.num_value_heads}},
                                   x);
  Op& op = layer.op(OpKind::LinearAttention, "linear_attention", {qkvz, ba});
  op.attributes.heads = linear.num_value_heads;
  op.attributes.kv_heads = linear.num_key_heads;
  op.attributes.head_size = linear.key_head_size;
  op.attributes.value_head_size = linear.value_head_size;
  op.attributes.epsilon = layer.spec().norm_epsilon;
  op.attributes.linear_attention = linear;
  const Dim value_heads = fixed(linear.num_value_heads);
  op.parameters = {
      layer.parameter("linear_attn.conv1d.weight",
                      {fixed(2 * key + value), fixed(linear.conv_size)}, Init::Normal,
                      {key, key, value}),
      layer.parameter("linear_attn.dt_bias", {value_heads}, Init::Ones),
      layer.parameter("linear_attn.A_log", {value_heads}, Init::Ones),
      layer.parameter("linear_attn.norm.weight", {fixed(linear.value_head_size)}, Init::Ones)};
  const TensorId out = layer.output(op, {row_count, fixed(value)});
  return append_output_projection(layer, out, "linear_attn.out_proj");
}

}  // namespace meshplan::models
