#include "models/graph.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/error.hpp"
#include "layer_builder.hpp"
#include "model_json.hpp"

namespace meshplan::models {
namespace {

/// Every layer's vectors of the tokens: looked up, and projected from the embedding.
void append_layer_inputs(LayerBuilder& layer, TensorId ids, TensorId x) {
  const LayerInputSpec& own = *layer.spec().layer_inputs;
  const std::int64_t width = std::int64_t{layer.spec().num_layers} * own.size;
  Op& lookup = layer.op(OpKind::Embedding, "layer_inputs", {ids});
  lookup.split = Split::Vocab;
  lookup.parameters.push_back(layer.parameter("embed_tokens_per_layer.weight",
                                              {fixed(own.vocab_size), fixed(width)}, Init::Normal));
  const TensorId found = layer.output(lookup, {tokens(), fixed(width)});
  const TensorId made = layer.linear(
      {.name = "layer_inputs_made", .weight = "per_layer_model_projection", .out = width}, x);
  layer.add("layer_inputs_add", found, made);
}

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
  if (spec.embedding_scale != 1.0) x = layer.scale("embedding_scale", x, spec.embedding_scale);
  if (spec.positions == Positions::Learned) {
    Op& positions = layer.op(OpKind::PositionEmbedding, "position_embedding", {x});
    positions.parameters.push_back(layer.parameter(
        "embed_positions.weight", {fixed(spec.max_positions), hidden}, Init::Normal));
    x = layer.output(positions, shape);
  }
  if (spec.layer_inputs) append_layer_inputs(layer, ids, x);
  if (spec.token_types > 0) {
    const TensorId types = layer.tensor("token_types", TensorClass::Index, {tokens()});
    Op& op = layer.op(OpKind::Embedding, "token_type_embedding", {types});
    op.parameters.push_back(layer.parameter("embed_token_types.weight",
                                            {fixed(spec.token_types), hidden}, Init::Normal));
    x = layer.add("token_type_add", x, layer.output(op, shape));
  }
  if (spec.embedding_norm) x = layer.norm("embedding_norm", "embed_norm", x);
  if (spec.hyper_connections)
    x = layer.output(layer.op(OpKind::StreamMix, "streams", {x}),
                     {tokens(), fixed(stream_width(spec))});
  layer.set_output(x);
  return layer.take();
}

/// Operations and weights of one half of a layer.
struct HalfNames {
  const char* norm;
  const char* norm_after;
  const char* add;
  const char* weight_before;
  const char* weight_after;
};

/// Gemma calls "post_attention_layernorm" what stands behind the attention; the others give that
/// name to the norm before the MLP.
HalfNames names_of_mixer() {
  return {"attention_norm", "post_attention_norm", "attention_add", "input_layernorm",
          "post_attention_layernorm"};
}

HalfNames names_of_ffn(NormPlacement placement) {
  return {"mlp_norm", "post_mlp_norm", "mlp_add",
          placement == NormPlacement::PrePost ? "pre_feedforward_layernorm"
                                              : "post_attention_layernorm",
          "post_feedforward_layernorm"};
}

TensorId append_mixer(LayerBuilder& layer, Mixer mixer, TensorId x) {
  switch (mixer) {
    case Mixer::Full:
    case Mixer::Sliding:
    case Mixer::Chunked:
      if (layer.spec().compressed_attention) return append_compressed_attention(layer, x);
      return layer.spec().mla ? append_latent_attention(layer, x)
                              : append_attention(layer, mixer, x);
    case Mixer::Linear:
      return append_linear_attention(layer, x);
    case Mixer::Mamba:
      return append_mamba(layer, x);
    case Mixer::AttentionAndMamba: {
      const TensorId attention = append_attention(layer, Mixer::Full, x);
      return layer.add("mixers_add", attention, append_mamba(layer, x));
    }
    case Mixer::Convolution:
      return append_convolution(layer, x);
    case Mixer::Projection:
      return append_projection(layer, "self_attn.linear_attn", x);
    case Mixer::None:
      break;
  }
  throw InvariantError("a layer without a mixer mixes nothing");
}

TensorId append_ffn(LayerBuilder& layer, FeedForward ffn, TensorId x) {
  switch (ffn) {
    case FeedForward::Dense:
      return append_mlp(layer, x);
    case FeedForward::Moe:
      return append_moe(layer, x);
    case FeedForward::Projection:
      return append_projection(layer, "mlp.linear_mlp", x);
    case FeedForward::None:
      break;
  }
  throw InvariantError("a layer without a feed-forward part has no output of it");
}

/// x with what `part` makes of it, by the model's placement of norms.
template <class Part>
TensorId append_half(LayerBuilder& layer, const HalfNames& names, TensorId x, Part part) {
  const ModelSpec& spec = layer.spec();
  const NormPlacement placement = spec.norm_placement;
  const bool before = placement == NormPlacement::Pre || placement == NormPlacement::PrePost;
  const bool after = placement == NormPlacement::PrePost || placement == NormPlacement::Output;
  TensorId y = before ? layer.norm(names.norm, names.weight_before, x) : x;
  y = part(y);
  if (after) y = layer.norm(names.norm_after, names.weight_after, y);
  if (spec.residual_scale)
    y = layer.scale(std::string(names.add) + "_scale", y, *spec.residual_scale);
  x = layer.add(names.add, x, y);
  return placement == NormPlacement::Post ? layer.norm(names.norm, names.weight_after, x) : x;
}

/// Both halves read the same stream, and their sum is added to it.
TensorId append_parallel_layer(LayerBuilder& layer, Mixer mixer, FeedForward ffn, TensorId x) {
  const bool own_norms = layer.spec().residual == Residual::ParallelOwnNorms;
  const TensorId y = layer.norm("attention_norm", "input_layernorm", x);
  // Both norms come first: their gradients then end in the stream's, one after the other.
  const TensorId z = own_norms ? layer.norm("mlp_norm", "post_attention_layernorm", x) : y;
  const TensorId mixed = append_mixer(layer, mixer, y);
  TensorId sum = layer.add("parallel_add", mixed, append_ffn(layer, ffn, z));
  if (layer.spec().residual_scale)
    sum = layer.scale("residual_scale", sum, *layer.spec().residual_scale);
  return layer.add("mlp_add", x, sum);
}

/// A normed product of low rank beside the mixer (Menghani et al. 2024, LAuReL).
TensorId append_low_rank_residual(LayerBuilder& layer, TensorId mixed, TensorId x) {
  const TensorId low = layer.linear({.name = "residual_down",
                                     .weight = "laurel.linear_left",
                                     .out = *layer.spec().low_rank_residual},
                                    x);
  const TensorId y = layer.linear(
      {.name = "residual_up", .weight = "laurel.linear_right", .out = layer.spec().hidden_size},
      low);
  return layer.add("residual_add", mixed,
                   layer.norm("residual_norm", "laurel.post_laurel_norm", y));
}

/// The layer's own vector of each token, gated by the stream and added to it (Gemma 3n).
TensorId append_layer_input(LayerBuilder& layer, TensorId x) {
  const std::int64_t size = layer.spec().layer_inputs->size;
  const std::vector<Dim> shape{tokens(), fixed(size)};
  const TensorId own = layer.tensor("layer_input", TensorClass::Activation, shape);
  const TensorId gate =
      layer.linear({.name = "layer_input_gate", .weight = "per_layer_input_gate", .out = size}, x);
  const TensorId gated =
      layer.output(layer.op(OpKind::Multiply, "layer_input_gated", {gate, own}), shape);
  const TensorId y = layer.linear({.name = "layer_input_out",
                                   .weight = "per_layer_projection",
                                   .out = layer.spec().hidden_size},
                                  gated);
  return layer.add("layer_input_add", x,
                   layer.norm("layer_input_norm", "post_per_layer_input_norm", y));
}

/// What a half layer reads of the streams: their mix, of which `outputs` weights a token are made.
TensorId append_stream_read(LayerBuilder& layer, const std::string& name, TensorId streams,
                            std::int64_t outputs) {
  const TensorId mix =
      layer.linear({.name = name + "_mix", .weight = name + "_hc.fn", .out = outputs}, streams);
  Op& read = layer.op(OpKind::StreamMix, name + "_read", {streams, mix});
  read.parameters = {layer.parameter(name + "_hc.base", {fixed(outputs)}, Init::Zeros),
                     layer.parameter(name + "_hc.scale", {fixed(3)}, Init::Ones)};
  return layer.output(read, {tokens(), fixed(layer.spec().hidden_size)});
}

template <class Part>
TensorId append_stream_half(LayerBuilder& layer, const HalfNames& names, const std::string& name,
                            TensorId streams, Part part) {
  const std::int64_t n = layer.spec().hyper_connections->streams;
  TensorId y = append_stream_read(layer, name, streams, (2 + n) * n);
  y = part(layer.norm(names.norm, names.weight_before, y));
  const std::vector<Dim> shape{tokens(), fixed(layer.width(streams))};
  return layer.output(layer.op(OpKind::StreamMix, name + "_write", {streams, y}), shape);
}

std::string kind_name(Mixer mixer, FeedForward ffn) {
  const std::string feed(name_of(ffn));
  if (mixer == Mixer::Full) return feed;
  return fmt::format("{}_{}", name_of(mixer), feed);
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
  if (spec.hyper_connections)
    x = append_stream_read(layer, "head", x, spec.hyper_connections->streams);
  if (spec.norm_placement != NormPlacement::Post) x = layer.norm("final_norm", "norm", x);
  if (spec.num_classes > 0) {
    append_loss(layer, append_classifier(layer, x));
  } else {
    if (spec.logit_scale) x = layer.scale("logit_scale", x, *spec.logit_scale);
    append_loss(layer, layer.linear({.name = "lm_head",
                                     .weight = spec.tied_embeddings ? "embed_tokens" : "lm_head",
                                     .out = spec.vocab_size,
                                     .split = Split::Vocab,
                                     .bias = spec.head_bias},
                                    x));
  }
  return layer.take();
}

}  // namespace

TensorId append_layer(LayerBuilder& layer, Mixer mixer, FeedForward ffn, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const auto mix = [&](TensorId y) {
    const TensorId mixed = append_mixer(layer, mixer, y);
    return spec.low_rank_residual ? append_low_rank_residual(layer, mixed, y) : mixed;
  };
  const auto feed = [&](TensorId y) { return append_ffn(layer, ffn, y); };
  const HalfNames first = names_of_mixer(), second = names_of_ffn(spec.norm_placement);
  if (spec.hyper_connections) {
    x = append_stream_half(layer, first, "attn", x, mix);
    return append_stream_half(layer, second, "ffn", x, feed);
  }
  const bool both = mixer != Mixer::None && ffn != FeedForward::None;
  if (spec.residual != Residual::Sequential && both)
    return append_parallel_layer(layer, mixer, ffn, x);
  if (mixer != Mixer::None) x = append_half(layer, first, x, mix);
  if (ffn != FeedForward::None) x = append_half(layer, second, x, feed);
  if (spec.layer_inputs) x = append_layer_input(layer, x);
  return x;
}

LayerGraph layer_graph(const ModelSpec& spec, Mixer mixer, FeedForward ffn, std::string name) {
  LayerBuilder layer(std::move(name), spec);
  const TensorId x = layer.input();
  layer.set_output(append_layer(layer, mixer, ffn, x));
  return layer.take();
}

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
  const std::vector<int> kinds = layers_of_each_kind(spec);
  std::map<std::string, int> of_name;
  for (const int layer : kinds) {
    const Mixer mixer = mixer_of_layer(spec, layer);
    const FeedForward ffn = ffn_of_layer(spec, layer);
    std::string name = kind_name(mixer, ffn);
    if (const int number = ++of_name[name]; number > 1) name += fmt::format("_{}", number);
    model.kinds.push_back(layer_graph(spec_of_layer(spec, layer), mixer, ffn, std::move(name)));
  }
  for (int layer = 0; layer < spec.num_layers; ++layer)
    model.layer_kind.push_back(static_cast<int>(
        std::ranges::find_if(kinds, [&](int known) { return of_one_kind(spec, known, layer); }) -
        kinds.begin()));
  model.head = head_graph(spec);
  for (int i = 0; i < spec.mtp_layers; ++i) model.mtp.push_back(prediction_graph(spec));
  model.ending = ending_graph(spec, model.head, model.mtp);
  if (spec.vision) model.vision = vision_graph(*spec.vision);
  model.tied_embeddings = spec.tied_embeddings;
  return model;
}

}  // namespace meshplan::models
