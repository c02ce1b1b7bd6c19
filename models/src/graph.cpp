#include "models/graph.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "layer_builder.hpp"

namespace meshplan::models {
namespace {

LayerGraph embedding_graph(const ModelSpec& spec) {
  LayerBuilder layer("embedding", spec);
  const Dim hidden = fixed(spec.hidden_size);
  const std::vector<Dim> shape{tokens(), hidden};
  const TensorId ids = layer.tensor("ids", TensorClass::Index, {tokens()});
  Op& lookup = layer.op(OpKind::Embedding, "embedding", {ids});
  lookup.split = Split::Vocab;
  lookup.parameters.push_back(
      layer.parameter("embed_tokens.weight", {fixed(spec.vocab_size), hidden}, Init::Normal));
  TensorId x = layer.output(lookup, shape);
  if (spec.embedding_scale != 1.0) {
    Op& scale = layer.op(OpKind::Scale, "embedding_scale", {x});
    scale.attributes.scale = spec.embedding_scale;
    x = layer.output(scale, shape);
  }
  if (spec.positions == Positions::Learned) {
    Op& positions = layer.op(OpKind::PositionEmbedding, "position_embedding", {x});
    positions.parameters.push_back(layer.parameter(
        "embed_positions.weight", {fixed(spec.max_positions), hidden}, Init::Normal));
    x = layer.output(positions, shape);
  }
  if (spec.token_types > 0) {
    const TensorId types = layer.tensor("token_types", TensorClass::Index, {tokens()});
    Op& op = layer.op(OpKind::Embedding, "token_type_embedding", {types});
    op.parameters.push_back(layer.parameter("embed_token_types.weight",
                                            {fixed(spec.token_types), hidden}, Init::Normal));
    x = layer.add("token_type_add", x, layer.output(op, shape));
  }
  if (spec.embedding_norm) x = layer.norm("embedding_norm", "embed_norm", x);
  layer.set_output(x);
  return layer.take();
}

/// Weight names of a layer's norms. Gemma calls "post_attention_layernorm" what stands behind the
/// attention; the others give that name to the norm before the MLP.
struct NormNames {
  const char* before_attention = "input_layernorm";
  const char* after_attention = "post_attention_layernorm";
  const char* before_mlp = "post_attention_layernorm";
  const char* after_mlp = "post_feedforward_layernorm";
};

TensorId append_layer(LayerBuilder& layer, LayerAttention attention, bool moe, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const bool norm_before = spec.norm_placement != NormPlacement::Post;
  const bool norm_after = spec.norm_placement == NormPlacement::PrePost;
  const bool norm_sum = spec.norm_placement == NormPlacement::Post;
  NormNames names;
  if (norm_after) names.before_mlp = "pre_feedforward_layernorm";

  TensorId y = norm_before ? layer.norm("attention_norm", names.before_attention, x) : x;
  if (attention == LayerAttention::Linear)
    y = append_linear_attention(layer, y);
  else if (spec.mla)
    y = append_latent_attention(layer, y);
  else
    y = append_attention(layer, attention, y);
  if (norm_after) y = layer.norm("post_attention_norm", names.after_attention, y);
  x = layer.add("attention_add", x, y);
  if (norm_sum) x = layer.norm("attention_norm", names.after_attention, x);

  y = norm_before ? layer.norm("mlp_norm", names.before_mlp, x) : x;
  y = moe ? append_moe(layer, y) : append_mlp(layer, y);
  if (norm_after) y = layer.norm("post_mlp_norm", names.after_mlp, y);
  x = layer.add("mlp_add", x, y);
  if (norm_sum) x = layer.norm("mlp_norm", names.after_mlp, x);
  return x;
}

std::string kind_name(LayerAttention attention, bool moe) {
  std::string ffn = moe ? "moe" : "dense";
  if (attention == LayerAttention::Sliding) return "sliding_" + ffn;
  if (attention == LayerAttention::Linear) return "linear_" + ffn;
  return ffn;
}

LayerGraph layer_graph(const ModelSpec& spec, LayerAttention attention, bool moe) {
  LayerBuilder layer(kind_name(attention, moe), spec);
  const TensorId x = layer.input();
  layer.set_output(append_layer(layer, attention, moe, x));
  return layer.take();
}

void append_loss(LayerBuilder& layer, TensorId logits) {
  const Dim row_count = layer.rows(logits);
  const TensorId targets = layer.tensor("targets", TensorClass::Index, {row_count});
  Op& loss = layer.op(OpKind::CrossEntropy, "loss", {logits, targets});
  loss.attributes.softcap = layer.spec().logit_softcap.value_or(0.0);
  layer.statistic(loss, "loss", {row_count});
  layer.statistic(loss, "lse", {row_count});
}

/// The first token of every sequence, through the pooler where there is one, to class logits.
TensorId append_classifier(LayerBuilder& layer, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const std::vector<Dim> shape{sequences(), fixed(spec.hidden_size)};
  TensorId pooled = layer.output(layer.op(OpKind::Pool, "pool", {x}), shape);
  if (spec.pooler) {
    const TensorId dense = layer.linear(
        {.name = "pooler", .weight = "pooler.dense", .out = spec.hidden_size, .bias = true},
        pooled);
    Op& tanh = layer.op(OpKind::Activation, "pooler_activation", {dense});
    tanh.attributes.activation = ActivationKind::Tanh;
    pooled = layer.output(tanh, shape);
  }
  return layer.linear(
      {.name = "classifier", .weight = "classifier", .out = spec.num_classes, .bias = true},
      pooled);
}

LayerGraph head_graph(const ModelSpec& spec) {
  LayerBuilder layer("head", spec);
  TensorId x = layer.input();
  if (spec.norm_placement != NormPlacement::Post) x = layer.norm("final_norm", "norm", x);
  if (spec.num_classes > 0) {
    append_loss(layer, append_classifier(layer, x));
  } else {
    append_loss(layer, layer.linear({.name = "lm_head",
                                     .weight = spec.tied_embeddings ? "embed_tokens" : "lm_head",
                                     .out = spec.vocab_size,
                                     .split = Split::Vocab},
                                    x));
  }
  return layer.take();
}

/// One multi-token prediction module: both inputs normed, concatenated and projected, then a layer
/// of the model's last kind and a norm. Source: DeepSeek-V3, section 2.2.
LayerGraph mtp_graph(const ModelSpec& spec) {
  LayerBuilder layer("mtp", spec);
  const TensorId hidden = layer.input();
  const TensorId next =
      layer.tensor("next_embeddings", TensorClass::Activation, {tokens(), fixed(spec.hidden_size)});
  const TensorId a = layer.norm("mtp_embedding_norm", "enorm", next);
  const TensorId b = layer.norm("mtp_hidden_norm", "hnorm", hidden);
  const TensorId both = layer.output(layer.op(OpKind::Concat, "mtp_concat", {a, b}),
                                     {tokens(), fixed(2 * std::int64_t{spec.hidden_size})});
  const TensorId projected =
      layer.linear({.name = "mtp_projection", .weight = "eh_proj", .out = spec.hidden_size}, both);
  const int last = spec.num_layers - 1;
  const TensorId y =
      append_layer(layer, attention_of_layer(spec, last), is_moe_layer(spec, last), projected);
  layer.set_output(layer.norm("mtp_final_norm", "shared_head.norm", y));
  return layer.take();
}

}  // namespace

std::int64_t evaluate(const Dim& dim, const SymbolValues& values) {
  std::int64_t symbol = 1;
  switch (dim.symbol) {
    case Symbol::One:
      break;
    case Symbol::Tokens:
      symbol = values.tokens;
      break;
    case Symbol::Sequences:
      symbol = values.sequences;
      break;
    case Symbol::RoutedTokens:
      symbol = values.routed_tokens;
      break;
    case Symbol::ForwardedTokens:
      symbol = values.forwarded_tokens;
      break;
  }
  const std::int64_t product = dim.count * symbol;
  require_invariant(dim.divisor > 0 && product % dim.divisor == 0,
                    "a dimension is not divided evenly by its sharding");
  return product / dim.divisor;
}

ModelGraph build_graph(const ModelSpec& spec) {
  validate(spec, spec.name);
  ModelGraph model;
  model.embedding = embedding_graph(spec);
  for (int i = 0; i < spec.num_layers; ++i) {
    const LayerAttention attention = attention_of_layer(spec, i);
    const bool moe = is_moe_layer(spec, i);
    const auto found = std::ranges::find(model.kinds, kind_name(attention, moe), &LayerGraph::name);
    model.layer_kind.push_back(static_cast<int>(found - model.kinds.begin()));
    if (found == model.kinds.end()) model.kinds.push_back(layer_graph(spec, attention, moe));
  }
  model.head = head_graph(spec);
  for (int i = 0; i < spec.mtp_layers; ++i) model.mtp.push_back(mtp_graph(spec));
  model.tied_embeddings = spec.tied_embeddings;
  return model;
}

}  // namespace meshplan::models
