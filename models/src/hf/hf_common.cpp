// What the families of Hugging Face configs have in common.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/index.hpp"
#include "hf/family_parts.hpp"

namespace meshplan::models {
namespace {

/// The head size where the file does not say: hidden over heads.
int derived_head_size(HfConfig& config, const ModelSpec& spec) {
  if (spec.hidden_size % spec.num_heads != 0)
    config.fail("num_attention_heads",
                fmt::format("hidden_size({}) must be a multiple of num_attention_heads({}) where "
                            "head_dim is not given; nearest: {}",
                            spec.hidden_size, spec.num_heads,
                            nearest_divisor(spec.hidden_size, spec.num_heads)));
  const int size = spec.hidden_size / spec.num_heads;
  config.assume(fmt::format("head_dim = {} (hidden_size / num_attention_heads)", size));
  return size;
}

Mixer parse_layer_type(const HfConfig& config, const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, Mixer>, 8> kNames{
      {{"full_attention", Mixer::Full},
       {"attention", Mixer::Full},
       {"sliding_attention", Mixer::Sliding},
       {"chunked_attention", Mixer::Chunked},
       {"linear_attention", Mixer::Linear},
       {"mamba", Mixer::Mamba},
       {"conv", Mixer::Convolution},
       {"hybrid", Mixer::AttentionAndMamba}}};
  std::vector<std::string> known;
  for (const auto& [said, mixer] : kNames) {
    if (said == name) return mixer;
    known.emplace_back(said);
  }
  config.fail("layer_types", unknown_name_message("layer type", name, known));
}

}  // namespace

void fill_sizes(HfConfig& config, ModelSpec& spec) {
  spec.num_layers = config.layers({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  spec.hidden_size = config.width({"hidden_size", "n_embd", "d_model", "n_embed"});
  spec.num_heads = config.positive({"num_attention_heads", "n_head", "n_heads", "num_heads"});
  spec.vocab_size = config.positive({"vocab_size"});
  spec.max_positions = config.positive(
      {"max_position_embeddings", "n_positions", "max_seq_len", "model_max_length", "seq_length"});
  spec.init_std = config.number({"initializer_range", "init_std"});
}

void fill_heads(HfConfig& config, ModelSpec& spec) {
  if (const auto kv_heads = config.optional_integer({"num_key_value_heads"})) {
    spec.num_kv_heads = *kv_heads;
  } else {
    spec.num_kv_heads = spec.num_heads;
    config.assume(fmt::format("num_key_value_heads = {} (num_attention_heads)", spec.num_heads));
  }
  if (spec.num_kv_heads == 0 || spec.num_heads % spec.num_kv_heads != 0)
    config.fail("num_key_value_heads",
                fmt::format("{} does not divide num_attention_heads({}); nearest: {}",
                            spec.num_kv_heads, spec.num_heads,
                            nearest_divisor(spec.num_heads, std::max(1, spec.num_kv_heads))));
  spec.head_size = config.optional_integer({"head_dim"}) ? config.positive({"head_dim"})
                                                         : derived_head_size(config, spec);
}

void fill_llama_like(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  fill_dropout(config, spec, {"attention_dropout"});
}

void fill_dropout(HfConfig& config, ModelSpec& spec, Keys keys) {
  for (const std::string_view key : keys) {
    const double rate = config.number_or({key}, 0.0);
    if (rate < 0 || rate >= 1)
      config.fail(key, fmt::format("expected a rate from 0 to less than 1, got {}", rate));
    spec.dropout = std::max(spec.dropout, rate);
  }
}

double balance_loss(HfConfig& config, ModelSpec& spec) {
  if (!config.flag({"output_router_logits"})) {
    config.ignore("router_aux_loss_coef",
                  "output_router_logits is false, so transformers trains without a balance loss; "
                  "moe.router.aux_loss_coefficient of a meshplan model sets one");
    return 0.0;
  }
  if (config.number({"router_aux_loss_coef"}) != 0.0)
    predict_only(spec,
                 "a balance loss over the whole batch and all layers jointly "
                 "(output_router_logits; moe.router.aux_loss_coefficient of a meshplan model sets "
                 "one of each layer and sequence)");
  return 0.0;
}

void require_absent_or(HfConfig& config, std::string_view key, bool value,
                       std::string_view reason) {
  if (config.flag_or({key}, value) != value)
    config.fail(key, fmt::format("{} is not supported: {}", !value, reason));
}

void require_no_jitter(HfConfig& config) {
  if (const double noise = config.number_or({"router_jitter_noise"}, 0.0); noise != 0.0)
    config.fail("router_jitter_noise",
                fmt::format("{} multiplies the router's input by noise in training, which is not "
                            "supported; set it to 0 to train without",
                            noise));
}

void fill_layer_types(HfConfig& config, ModelSpec& spec, std::vector<Mixer> fallback) {
  std::vector<Mixer> layers;
  if (config.has("layer_types")) {
    for (const std::string& name : config.texts({"layer_types"}))
      layers.push_back(parse_layer_type(config, name));
    if (layers.size() < at(spec.num_layers))
      config.fail("layer_types", fmt::format("has {} entries, but num_hidden_layers is {}",
                                             layers.size(), spec.num_layers));
    if (layers.size() > at(spec.num_layers)) {
      config.assume(fmt::format("layer_types has {} entries, of which the first {} are layers",
                                layers.size(), spec.num_layers));
      layers.resize(at(spec.num_layers));
    }
  } else {
    layers = std::move(fallback);
  }
  set_mixers(spec, layers);
  const bool sliding = has_mixer(spec, Mixer::Sliding);
  if (!sliding && !has_mixer(spec, Mixer::Chunked)) return;
  const std::string_view key = sliding ? "sliding_window" : "attention_chunk_size";
  const auto window = config.optional_integer({key});
  if (!window || *window == 0) config.fail(key, "expected at least 1, because layers are sliding");
  spec.window = *window;
}

}  // namespace meshplan::models
