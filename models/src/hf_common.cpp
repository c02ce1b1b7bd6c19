// What the families of Hugging Face configs have in common.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "hf_config.hpp"
#include "model_json.hpp"

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

/// The shortest prefix that repeats over all layers; empty if every layer is Full.
std::vector<LayerAttention> shortest_period(const std::vector<LayerAttention>& layers) {
  for (std::size_t period = 1; period <= layers.size(); ++period) {
    bool repeats = true;
    for (std::size_t i = period; i < layers.size() && repeats; ++i)
      repeats = layers[i] == layers[i - period];
    if (!repeats) continue;
    if (period == 1 && layers.front() == LayerAttention::Full) return {};
    return {layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(period)};
  }
  return {};
}

LayerAttention parse_layer_type(const HfConfig& config, const std::string& name) {
  if (name == "full_attention") return LayerAttention::Full;
  if (name == "sliding_attention") return LayerAttention::Sliding;
  if (name == "linear_attention") return LayerAttention::Linear;
  config.fail("layer_types",
              unknown_name_message("layer type", name,
                                   {"full_attention", "sliding_attention", "linear_attention"}));
}

}  // namespace

void fill_sizes(HfConfig& config, ModelSpec& spec) {
  spec.num_layers = config.positive({"num_hidden_layers", "n_layer"});
  if (spec.num_layers > limits::kLayers)
    config.fail("num_hidden_layers",
                fmt::format("expected at most {}, got {}", limits::kLayers, spec.num_layers));
  spec.hidden_size = config.width({"hidden_size", "n_embd"});
  spec.num_heads = config.positive({"num_attention_heads", "n_head"});
  spec.vocab_size = config.positive({"vocab_size"});
  spec.max_positions = config.positive({"max_position_embeddings", "n_positions"});
  spec.init_std = config.number({"initializer_range"});
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
  const auto head_size = config.optional_integer({"head_dim"});
  spec.head_size = head_size ? *head_size : derived_head_size(config, spec);
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

double balance_loss(HfConfig& config) {
  if (!config.flag({"output_router_logits"})) {
    config.ignore("router_aux_loss_coef",
                  "output_router_logits is false, so transformers trains without a balance loss; "
                  "moe.router.aux_loss_coefficient of a meshplan model sets one");
    return 0.0;
  }
  if (config.number({"router_aux_loss_coef"}) != 0.0)
    config.fail("output_router_logits",
                "true adds a balance loss over the whole batch and all layers jointly, which is "
                "not supported; set it to false to train without one, or then set "
                "moe.router.aux_loss_coefficient in meshplan's form of the model for one of each "
                "layer and sequence");
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

void fill_layer_types(HfConfig& config, ModelSpec& spec, std::vector<LayerAttention> fallback) {
  std::vector<LayerAttention> layers;
  if (config.has("layer_types")) {
    for (const std::string& name : config.texts({"layer_types"}))
      layers.push_back(parse_layer_type(config, name));
    if (layers.size() != static_cast<std::size_t>(spec.num_layers))
      config.fail("layer_types", fmt::format("has {} entries, but num_hidden_layers is {}",
                                             layers.size(), spec.num_layers));
  } else {
    layers = std::move(fallback);
  }
  spec.layer_pattern = shortest_period(layers);
  if (std::ranges::find(layers, LayerAttention::Sliding) == layers.end()) return;
  const auto window = config.optional_integer({"sliding_window"});
  if (!window || *window == 0)
    config.fail("sliding_window", "expected at least 1, because layers are sliding");
  spec.window = *window;
}

}  // namespace meshplan::models
