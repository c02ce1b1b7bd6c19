// Mixers whose cost grows with the tokens alone: linear attention, Mamba and gated convolutions.
#include "layer_builder.hpp"

namespace meshplan::models {
namespace {

constexpr int kDeltaChunk = 64;  // tokens of flash-linear-attention's chunks

TensorId append_short_convolution(LayerBuilder& layer, const std::string& weight, int taps,
                                  bool bias, bool activates,
                                  const std::vector<std::int64_t>& sections, TensorId x) {
  const std::vector<Dim> shape{layer.rows(x), fixed(layer.width(x))};
  Op& op = layer.op(OpKind::ShortConvolution, "convolution", {x});
  op.attributes.activation = activates ? ActivationKind::Silu : ActivationKind::None;
  op.split = Split::Column;
  op.parameters = {
      layer.parameter(weight + ".weight", {shape.back(), fixed(taps)}, Init::Normal, sections)};
  if (bias)
    op.parameters.push_back(
        layer.parameter(weight + ".bias", {shape.back()}, Init::Zeros, sections));
  return layer.output(op, shape, sections);
}

struct GatedNormShape {
  std::string weight;
  std::int64_t group = 0;        // elements that are normed together
  std::int64_t weight_size = 0;  // group: shared by all groups
  ActivationKind activation = ActivationKind::Silu;
  bool gate_first = false;
};

TensorId append_gated_norm(LayerBuilder& layer, const GatedNormShape& shape, TensorId x,
                           TensorId gate) {
  const std::vector<Dim> whole{layer.rows(x), fixed(layer.width(x))};
  Op& op = layer.op(OpKind::GatedNorm, "gated_norm", {x, gate});
  op.attributes.epsilon = layer.spec().norm_epsilon;
  op.attributes.activation = shape.activation;
  op.attributes.norm_group = static_cast<int>(shape.group);
  op.attributes.gate_first = shape.gate_first;
  op.split = shape.weight_size == shape.group ? Split::None : Split::Column;
  op.parameters = {
      layer.parameter(shape.weight + ".weight", {fixed(shape.weight_size)}, Init::Ones)};
  const TensorId y = layer.output(op, whole);
  layer.statistic(op, "inv_rms", {whole.front(), fixed(whole.back().count / shape.group)});
  return y;
}

Op& append_recurrence(LayerBuilder& layer, std::vector<TensorId> inputs) {
  const LinearAttentionSpec& linear = *layer.spec().linear_attention;
  Op& op = layer.op(OpKind::LinearAttention, "linear_attention", std::move(inputs));
  op.modules.add(Module::Attention);
  op.split = Split::Column;
  op.attributes.heads = linear.num_value_heads;
  op.attributes.kv_heads = linear.num_key_heads;
  op.attributes.head_size = linear.key_head_size;
  op.attributes.value_head_size = linear.value_head_size;
  op.attributes.epsilon = layer.spec().norm_epsilon;
  op.attributes.linear_attention = linear;
  op.attributes.chunk = kDeltaChunk;
  return op;
}

/// Decays and write strengths of a token, of the kind's own shape, and the weights of the decays.
void append_decays(LayerBuilder& layer, TensorId x, std::vector<TensorId>& inputs,
                   std::vector<TensorId>& weights) {
  const LinearAttentionSpec& linear = *layer.spec().linear_attention;
  const std::int64_t heads = linear.num_value_heads;
  const auto weight = [&](const char* name, std::int64_t size) {
    weights.push_back(layer.parameter(name, {fixed(size)}, Init::Ones));
  };
  if (linear.kind == LinearAttentionKind::GatedDelta) {
    inputs.push_back(layer.linear({.name = "linear_ba",
                                   .weight = "linear_attn.in_proj_ba",
                                   .out = 2 * heads,
                                   .split = Split::Column,
                                   .sections = {heads, heads}},
                                  x));
    weight("linear_attn.dt_bias", heads);
    weight("linear_attn.A_log", heads);
  } else if (linear.kind == LinearAttentionKind::KimiDelta) {
    const std::int64_t keys = std::int64_t{linear.num_key_heads} * linear.key_head_size;
    inputs.push_back(
        append_low_rank(layer, "linear_decay", "linear_attn.f", linear.decay_rank, keys, x));
    inputs.push_back(layer.linear({.name = "linear_beta",
                                   .weight = "linear_attn.b_proj",
                                   .out = heads,
                                   .split = Split::Column},
                                  x));
    weight("linear_attn.dt_bias", keys);
    weight("linear_attn.A_log", heads);
  }
}

/// x, B and C of Mamba 2 come from one convolution, each head of x from one step size.
TensorId append_mamba2(LayerBuilder& layer, TensorId x) {
  const MambaSpec& mamba = *layer.spec().mamba;
  const std::int64_t inner = mamba.inner_size();
  const std::int64_t states = std::int64_t{mamba.num_groups} * mamba.state_size;
  const std::vector<std::int64_t> sections{inner, states, states};
  const auto in = [&](const char* name, const char* weight, std::int64_t out,
                      std::vector<std::int64_t> parts) {
    return layer.linear({.name = name,
                         .weight = weight,
                         .out = out,
                         .split = Split::Column,
                         .bias = mamba.projection_bias,
                         .sections = std::move(parts)},
                        x);
  };
  const TensorId gate = in("mamba_gate", "mamba.z_proj", inner, {});
  const TensorId xbc = in("mamba_in", "mamba.xbc_proj", inner + 2 * states, sections);
  const TensorId step = in("mamba_step", "mamba.dt_proj", mamba.num_heads, {});
  const TensorId mixed = append_short_convolution(layer, "mamba.conv1d", mamba.conv_size,
                                                  mamba.conv_bias, true, sections, xbc);
  const Dim row_count = layer.rows(x);
  Op& op = layer.op(OpKind::StateSpace, "state_space", {mixed, step});
  op.modules.add(Module::Attention);
  op.split = Split::Column;
  op.attributes.heads = mamba.num_heads;
  op.attributes.kv_heads = mamba.num_groups;
  op.attributes.head_size = mamba.state_size;
  op.attributes.value_head_size = mamba.head_size;
  op.attributes.mamba = mamba;
  op.attributes.chunk = mamba.chunk_size;
  for (const char* name : {"mamba.A_log", "mamba.D", "mamba.dt_bias"})
    op.parameters.push_back(layer.parameter(name, {fixed(mamba.num_heads)}, Init::Ones));
  TensorId y = layer.output(op, {row_count, fixed(inner)});
  if (mamba.norm)
    y = append_gated_norm(layer,
                          {.weight = "mamba.norm",
                           .group = inner / mamba.num_groups,
                           .weight_size = inner,
                           .gate_first = true},
                          y, gate);
  else
    y = layer.output(layer.op(OpKind::Multiply, "gated", {y, gate}), {row_count, fixed(inner)});
  return append_output_projection(layer, y, "mamba.out_proj");
}

/// Step sizes, B and C of Mamba 1 are made of the convolved x (Gu & Dao 2023, algorithm 2).
TensorId append_mamba1(LayerBuilder& layer, TensorId x) {
  const MambaSpec& mamba = *layer.spec().mamba;
  const std::int64_t inner = mamba.inner_size();
  const Dim row_count = layer.rows(x);
  const auto in = [&](const char* name, const char* weight) {
    return layer.linear({.name = name,
                         .weight = weight,
                         .out = inner,
                         .split = Split::Column,
                         .bias = mamba.projection_bias},
                        x);
  };
  const TensorId gate = in("mamba_gate", "mamba.z_proj");
  const TensorId mixed =
      append_short_convolution(layer, "mamba.conv1d", mamba.conv_size, mamba.conv_bias, true, {},
                               in("mamba_in", "mamba.x_in_proj"));
  const std::int64_t small = mamba.time_step_rank + 2 * std::int64_t{mamba.state_size};
  TensorId low = layer.linear(
      {.name = "mamba_select", .weight = "mamba.x_proj", .out = small, .split = Split::Row}, mixed);
  if (mamba.inner_norms) low = layer.norm("mamba_select_norm", "mamba.inner_norms", low);
  // Of `low` only the time step's rank is read.
  Op& steps = layer.op(OpKind::Linear, "mamba_step", {low});
  steps.split = Split::Column;
  steps.parameters = {layer.parameter("mamba.dt_proj.weight",
                                      {fixed(inner), fixed(mamba.time_step_rank)}, Init::Normal),
                      layer.parameter("mamba.dt_proj.bias", {fixed(inner)}, Init::Zeros)};
  const TensorId step = layer.output(steps, {row_count, fixed(inner)});
  Op& op = layer.op(OpKind::StateSpace, "state_space", {mixed, step, low});
  op.modules.add(Module::Attention);
  op.split = Split::Column;
  op.attributes.heads = mamba.num_heads;
  op.attributes.kv_heads = 1;
  op.attributes.head_size = mamba.state_size;
  op.attributes.value_head_size = mamba.head_size;
  op.attributes.mamba = mamba;
  op.parameters = {
      layer.parameter("mamba.A_log", {fixed(inner), fixed(mamba.state_size)}, Init::Ones),
      layer.parameter("mamba.D", {fixed(inner)}, Init::Ones)};
  const TensorId y = layer.output(op, {row_count, fixed(inner)});
  const TensorId gated =
      layer.output(layer.op(OpKind::Multiply, "gated", {y, gate}), {row_count, fixed(inner)});
  return append_output_projection(layer, gated, "mamba.out_proj");
}

}  // namespace

TensorId append_linear_attention(LayerBuilder& layer, TensorId x) {
  const LinearAttentionSpec& linear = *layer.spec().linear_attention;
  const Dim row_count = layer.rows(x);
  const std::int64_t key = std::int64_t{linear.num_key_heads} * linear.key_head_size;
  const std::int64_t value = std::int64_t{linear.num_value_heads} * linear.value_head_size;
  const std::vector<std::int64_t> sections{key, key, value};
  TensorId qkv = layer.linear({.name = "linear_qkv",
                               .weight = "linear_attn.in_proj_qkv",
                               .out = 2 * key + value,
                               .split = Split::Column,
                               .sections = sections},
                              x);
  const TensorId gate =
      append_low_rank(layer, "linear_gate", "linear_attn.z", linear.gate_rank, value, x);
  if (linear.conv_size > 0) {
    qkv = append_short_convolution(layer, "linear_attn.conv1d", linear.conv_size, false, true,
                                   sections, qkv);
  } else {
    Op& act = layer.op(OpKind::Activation, "linear_activation", {qkv});
    act.attributes.activation = ActivationKind::Silu;
    qkv = layer.output(act, {row_count, fixed(2 * key + value)}, sections);
  }
  std::vector<TensorId> inputs{qkv};
  std::vector<TensorId> weights;
  append_decays(layer, x, inputs, weights);
  Op& op = append_recurrence(layer, std::move(inputs));
  op.parameters = std::move(weights);
  const TensorId out = layer.output(op, {row_count, fixed(value)});
  const bool simple = linear.kind == LinearAttentionKind::Simple;
  const bool sigmoid = linear.kind != LinearAttentionKind::GatedDelta;
  const TensorId gated =
      append_gated_norm(layer,
                        {.weight = "linear_attn.norm",
                         .group = simple ? value : linear.value_head_size,
                         .weight_size = simple ? value : linear.value_head_size,
                         .activation = sigmoid ? ActivationKind::Sigmoid : ActivationKind::Silu},
                        out, gate);
  return append_output_projection(layer, gated, "linear_attn.out_proj");
}

TensorId append_mamba(LayerBuilder& layer, TensorId x) {
  return layer.spec().mamba->version == 1 ? append_mamba1(layer, x) : append_mamba2(layer, x);
}

TensorId append_convolution(LayerBuilder& layer, TensorId x) {
  const ConvolutionSpec& own = *layer.spec().convolution;
  const std::int64_t d = layer.spec().hidden_size;
  const std::vector<Dim> shape{layer.rows(x), fixed(d)};
  const auto in = [&](const char* name, const char* weight) {
    return layer.linear(
        {.name = name, .weight = weight, .out = d, .split = Split::Column, .bias = own.bias}, x);
  };
  const TensorId b = in("convolution_b", "conv.b_proj");
  const TensorId c = in("convolution_c", "conv.c_proj");
  const TensorId value = in("convolution_x", "conv.x_proj");
  const TensorId gated = layer.output(layer.op(OpKind::Multiply, "gated_in", {b, value}), shape);
  const TensorId mixed =
      append_short_convolution(layer, "conv.conv", own.size, own.bias, false, {}, gated);
  const TensorId y = layer.output(layer.op(OpKind::Multiply, "gated_out", {c, mixed}), shape);
  return append_output_projection(layer, y, "conv.out_proj");
}

}  // namespace meshplan::models
