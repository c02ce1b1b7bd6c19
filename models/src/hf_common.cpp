// What the families of Hugging Face configs have in common.
#include <algorithm>
#include <cmath>

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

/// transformers 5 keeps rope in `rope_parameters`, flat or one object per kind of layer.
struct RopeKeys {
  std::optional<double> base;
  std::optional<double> local_base;
  std::optional<double> partial_factor;
  std::string scaling = "default";
};

void read_rope_object(const HfConfig& rope, RopeKeys& keys) {
  keys.base = rope.own_number("rope_theta");
  keys.partial_factor = rope.own_number("partial_rotary_factor");
  if (const auto type = rope.own_text("rope_type"))
    keys.scaling = *type;
  else if (const auto old = rope.own_text("type"))
    keys.scaling = *old;
}

RopeKeys read_rope(const HfConfig& config) {
  RopeKeys keys;
  if (const auto rope = config.object("rope_parameters")) {
    if (const auto full = rope->object("full_attention")) {
      read_rope_object(*full, keys);
      if (const auto local = rope->object("sliding_attention"))
        keys.local_base = local->own_number("rope_theta");
    } else {
      read_rope_object(*rope, keys);
    }
  } else if (const auto scaling = config.object("rope_scaling")) {
    read_rope_object(*scaling, keys);
  }
  return keys;
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
  spec.hidden_size = config.positive({"hidden_size", "n_embd"});
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

void fill_rope(HfConfig& config, ModelSpec& spec) {
  const RopeKeys keys = read_rope(config);
  spec.positions = Positions::Rope;
  spec.rope_base = keys.base ? *keys.base : config.number({"rope_theta"});
  spec.local_rope_base = keys.local_base;
  const auto partial =
      keys.partial_factor ? keys.partial_factor : config.optional_number({"partial_rotary_factor"});
  if (partial && *partial != 1.0) spec.rope_size = static_cast<int>(spec.head_size * *partial);
  if (keys.scaling != "default")
    config.assume(fmt::format(
        "rope scaling '{}' left out: it changes no parameter and no cost, only long contexts",
        keys.scaling));
}

void fill_llama_like(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
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
