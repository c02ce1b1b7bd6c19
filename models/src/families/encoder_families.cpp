// Encoders: BERT and what came of it, ModernBERT, and the encoder of a T5.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/index.hpp"
#include "core/limits.hpp"
#include "families/families.hpp"
#include "hf/family_parts.hpp"

namespace meshplan::models {
namespace {

void fill_bert(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  if (config.flag({"is_decoder"})) config.fail("is_decoder", "a BERT decoder is not supported");
  if (const std::string kind = config.text({"position_embedding_type"}); kind != "absolute")
    config.fail("position_embedding_type",
                fmt::format("'{}' is not supported, only 'absolute'", kind));
  spec.norm = Norm::LayerNorm;
  spec.norm_placement = NormPlacement::Post;
  spec.norm_epsilon = config.number({"layer_norm_eps"});
  spec.mlp = Mlp::Plain;
  spec.activation = config.activation({"hidden_act"});
  spec.positions = Positions::Learned;
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
  spec.causal = false;
  spec.token_types = config.integer({"type_vocab_size"});
  spec.embedding_norm = spec.pooler = true;
  fill_dropout(config, spec,
               {"hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"});
  const auto labels = config.num_entries("id2label");
  spec.num_classes = labels ? *labels : config.integer({"num_labels"});
}

void fill_classes(HfConfig& config, ModelSpec& spec) {
  spec.causal = false;
  spec.tied_embeddings = false;
  config.ignore("tie_word_embeddings", "a classifier has no output projection");
  const auto labels = config.num_entries("id2label");
  spec.num_classes = labels ? *labels : config.integer({"num_labels"});
}

void fill_distilbert(HfConfig& config, ModelSpec& spec) {
  spec.num_layers = config.layers({"n_layers", "num_hidden_layers"});
  spec.hidden_size = config.width({"dim", "hidden_size"});
  spec.num_heads = spec.num_kv_heads = config.positive({"n_heads", "num_attention_heads"});
  spec.head_size = spec.hidden_size / spec.num_heads;
  spec.vocab_size = config.positive({"vocab_size"});
  spec.max_positions = config.positive({"max_position_embeddings"});
  spec.init_std = config.number({"initializer_range"});
  spec.ffn_size = config.positive({"hidden_dim", "intermediate_size"});
  spec.norm = Norm::LayerNorm;
  spec.norm_placement = NormPlacement::Post;
  spec.norm_epsilon = 1e-12;
  spec.mlp = Mlp::Plain;
  spec.activation = config.activation({"activation"});
  spec.positions = Positions::Learned;
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
  spec.embedding_norm = spec.pooler = true;
  fill_classes(config, spec);
  predict_only(spec, "a classifier that rectifies what it pools (every distilbert)");
  fill_dropout(config, spec, {"dropout", "attention_dropout", "seq_classif_dropout"});
}

/// Windows on both sides of a token, but in every third layer.
void fill_modernbert(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  spec.norm = Norm::LayerNorm;
  spec.norm_bias = config.flag({"norm_bias"});
  spec.norm_epsilon = config.number({"norm_eps"});
  spec.rope_base = config.number({"global_rope_theta"});
  spec.local_rope_base = config.optional_number({"local_rope_theta"});
  const int every = config.positive({"global_attn_every_n_layers"});
  Mixers mixers = uniform(spec, Mixer::Sliding);
  for (int i = 0; i < spec.num_layers; i += every) mixers[at(i)] = Mixer::Full;
  set_mixers(spec, mixers);
  spec.window = config.positive({"local_attention"});
  if (!has_mixer(spec, Mixer::Sliding)) spec.window = 0;
  if (spec.window == 0) spec.local_rope_base.reset();
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_activation"});
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
  spec.embedding_norm = spec.pooler = true;
  fill_classes(config, spec);
  predict_only(spec, "windows on both sides of a token, and a classifier with a norm (modernbert)");
  fill_dropout(config, spec,
               {"attention_dropout", "embedding_dropout", "mlp_dropout", "classifier_dropout"});
  for (const char* key : {"rope_theta", "layer_types", "position_embedding_type", "layer_norm_eps",
                          "rope_parameters", "reference_compile", "gradient_checkpointing"})
    config.ignore(key, "said by other keys");
}

/// The encoder of a T5, with a bias of scores for each distance.
void fill_t5(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  spec.num_kv_heads = spec.num_heads;
  spec.head_size = config.positive({"d_kv"});
  spec.norm_epsilon = config.number({"layer_norm_epsilon"});
  spec.positions = Positions::None;
  spec.attention_scale = 1.0;
  spec.ffn_size = config.positive({"d_ff"});
  const std::string kind = config.text({"feed_forward_proj"});
  spec.mlp = kind.starts_with("gated-") ? Mlp::Gated : Mlp::Plain;
  spec.activation = kind.ends_with("gelu")   ? ActivationKind::GeluTanh
                    : kind.ends_with("silu") ? ActivationKind::Silu
                                             : ActivationKind::Relu;
  fill_classes(config, spec);
  predict_only(spec, "a bias of the scores for each distance; the decoder is left out (t5)");
  fill_dropout(config, spec, {"dropout_rate", "classifier_dropout"});
  for (const char* key :
       {"num_decoder_layers", "relative_attention_num_buckets", "relative_attention_max_distance",
        "initializer_factor", "is_gated_act", "dense_act_fn"})
    config.ignore(key, "of the decoder, or of the bias of scores");
}

}  // namespace

std::vector<HfFamily> encoder_families() {
  return {{"bert", fill_bert},
          {"distilbert", fill_distilbert},
          {"modernbert", fill_modernbert},
          {"roberta", fill_bert},
          {"t5", fill_t5},
          {"xlm-roberta", fill_bert}};
}

}  // namespace meshplan::models
