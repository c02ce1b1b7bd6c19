// The rules between the fields of a ModelSpec; the bounds of single fields stand in model_json.hpp.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/index.hpp"
#include "model_json.hpp"
#include "models/adapters.hpp"

namespace meshplan::models {
namespace {

/// Collects nothing: the first broken rule ends the validation.
class Rules {
 public:
  explicit Rules(std::string_view file) : file_(file) {}

  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> message, Args&&... args) const {
    if (!holds)
      throw ConfigError(
          fmt::format("{}: {}", file_, fmt::format(message, std::forward<Args>(args)...)));
  }

 private:
  std::string_view file_;
};

int rotated_size(const ModelSpec& s) {
  if (s.compressed_attention) return s.compressed_attention->rope_size;
  return s.mla ? s.mla->qk_rope_head_size : s.rope_size.value_or(s.head_size);
}

void check_heads(const ModelSpec& s, const Rules& rules) {
  rules.require(s.num_heads % s.num_kv_heads == 0,
                "num_heads({}) must be a multiple of num_kv_heads({}); nearest: num_kv_heads = {}",
                s.num_heads, s.num_kv_heads, nearest_divisor(s.num_heads, s.num_kv_heads));
  if (s.positions != Positions::Rope) return;
  const int rotated = rotated_size(s);
  rules.require(rotated <= s.head_size, "rope_size({}) is larger than head_size({})", rotated,
                s.head_size);
  rules.require(rotated % 2 == 0,
                "rope rotates pairs, but {} elements of a head are rotated; nearest: {}", rotated,
                rotated - 1);
}

struct ScalingField {
  const char* name;
  RopeScalingKind kind;
  bool given;
};

void check_rope_scaling(const ModelSpec& s, const Rules& rules) {
  if (!s.rope_scaling) return;
  const RopeScaling& scaling = *s.rope_scaling;
  const RopeScaling defaults;
  rules.require(s.positions == Positions::Rope,
                "rope_scaling is given, but positions is not 'rope'; remove rope_scaling");
  using enum RopeScalingKind;
  const ScalingField of_one_kind[] = {
      {"low_frequency_factor", Llama3,
       scaling.low_frequency_factor != defaults.low_frequency_factor},
      {"high_frequency_factor", Llama3,
       scaling.high_frequency_factor != defaults.high_frequency_factor},
      {"beta_fast", Yarn, scaling.beta_fast != defaults.beta_fast},
      {"beta_slow", Yarn, scaling.beta_slow != defaults.beta_slow},
      {"truncate", Yarn, scaling.truncate != defaults.truncate},
      {"attention_factor", Yarn, scaling.attention_factor.has_value()},
      {"mscale", Yarn, scaling.mscale.has_value()},
      {"mscale_all_dim", Yarn, scaling.mscale_all_dim.has_value()}};
  for (const ScalingField& field : of_one_kind)
    rules.require(!field.given || field.kind == scaling.kind,
                  "rope_scaling.{} belongs to type '{}', but type is '{}'; remove it", field.name,
                  name_of(field.kind), name_of(scaling.kind));
  rules.require(
      scaling.kind != Llama3 || scaling.high_frequency_factor >= scaling.low_frequency_factor,
      "rope_scaling: high_frequency_factor({}) must not be less than "
      "low_frequency_factor({})",
      scaling.high_frequency_factor, scaling.low_frequency_factor);
  rules.require(scaling.kind != Yarn || scaling.beta_fast >= scaling.beta_slow,
                "rope_scaling: beta_fast({}) must not be less than beta_slow({})",
                scaling.beta_fast, scaling.beta_slow);
  rules.require(scaling.kind != Yarn || s.rope_base > 1.0,
                "rope_scaling of type 'yarn' needs a rope_base above 1, not {}", s.rope_base);
  const bool uses_original = scaling.kind == Llama3 || scaling.kind == Yarn;
  rules.require(!uses_original || scaling.original_max_positions,
                "rope_scaling of type '{}' needs original_max_positions", name_of(scaling.kind));
  rules.require(scaling.kind != Linear || !scaling.original_max_positions,
                "rope_scaling of type 'linear' depends on no length: remove "
                "original_max_positions");
  rules.require(scaling.kind != Dynamic || rotated_size(s) > 2,
                "rope_scaling of type 'dynamic' needs more than 2 rotated elements of a head");
}

/// A part is described where a layer has it, and nowhere else.
void check_described(const Rules& rules, Mixer mixer, const char* field, bool used, bool given) {
  rules.require(used == given, "{} is {}, but layer_pattern has {} '{}' layer", field,
                given ? "given" : "missing", used ? "a" : "no", name_of(mixer));
}

void check_window(const ModelSpec& s, const Rules& rules) {
  const bool sliding = has_mixer(s, Mixer::Sliding);
  const bool windowed =
      sliding || has_mixer(s, Mixer::Chunked) || s.compressed_attention.has_value();
  const bool everywhere = std::ranges::any_of(
      s.layer_variants, [](const LayerVariant& variant) { return variant.window.has_value(); });
  rules.require(!windowed || s.window > 0 || everywhere,
                "layer_pattern has sliding layers, so window must be at least 1, not {}", s.window);
  rules.require(windowed || s.window == 0,
                "window is {}, but layer_pattern has no sliding layer; add one or set window = 0",
                s.window);
  rules.require(sliding || !s.local_rope_base,
                "local_rope_base is given, but layer_pattern has no sliding layer");
}

void check_recurrent(const ModelSpec& s, const Rules& rules) {
  check_described(rules, Mixer::Linear, "linear_attention", has_mixer(s, Mixer::Linear),
                  s.linear_attention.has_value());
  check_described(rules, Mixer::Mamba, "mamba",
                  has_mixer(s, Mixer::Mamba) || has_mixer(s, Mixer::AttentionAndMamba),
                  s.mamba.has_value());
  check_described(rules, Mixer::Convolution, "convolution", has_mixer(s, Mixer::Convolution),
                  s.convolution.has_value());
  if (s.linear_attention) {
    const LinearAttentionSpec& linear = *s.linear_attention;
    rules.require(
        linear.num_value_heads % linear.num_key_heads == 0,
        "linear_attention: num_value_heads({}) must be a multiple of num_key_heads({}); nearest: "
        "num_key_heads = {}",
        linear.num_value_heads, linear.num_key_heads,
        nearest_divisor(linear.num_value_heads, linear.num_key_heads));
  }
  if (!s.mamba) return;
  const MambaSpec& mamba = *s.mamba;
  rules.require(mamba.num_heads % mamba.num_groups == 0,
                "mamba: num_heads({}) must be a multiple of num_groups({}); nearest: {}",
                mamba.num_heads, mamba.num_groups,
                nearest_divisor(mamba.num_heads, mamba.num_groups));
  rules.require(mamba.version == 2 || (mamba.head_size == 1 && mamba.time_step_rank > 0),
                "mamba of version 1 has heads of one element and a time_step_rank, not {} and {}",
                mamba.head_size, mamba.time_step_rank);
}

void check_layer_pattern(const ModelSpec& s, const Rules& rules) {
  const auto layers = static_cast<std::size_t>(s.num_layers);
  rules.require(s.layer_pattern.size() <= layers,
                "layer_pattern has {} entries, but num_layers is {}", s.layer_pattern.size(),
                s.num_layers);
  rules.require(s.ffn_pattern.size() <= layers, "ffn_pattern has {} entries, but num_layers is {}",
                s.ffn_pattern.size(), s.num_layers);
  check_window(s, rules);
  check_recurrent(s, rules);
  for (int layer = 0; layer < s.num_layers; ++layer)
    rules.require(
        mixer_of_layer(s, layer) != Mixer::None || ffn_of_layer(s, layer) != FeedForward::None,
        "layer {} has neither a mixer nor a feed-forward part; leave it out", layer);
}

void check_variants(const ModelSpec& s, const Rules& rules) {
  std::vector<bool> taken(static_cast<std::size_t>(s.num_layers), false);
  for (std::size_t i = 0; i < s.layer_variants.size(); ++i) {
    const LayerVariant& variant = s.layer_variants[i];
    rules.require(!variant.layers.empty(), "layer_variants[{}].layers is empty", i);
    int previous = -1;
    for (const int layer : variant.layers) {
      rules.require(layer > previous && layer < s.num_layers,
                    "layer_variants[{}].layers: {} must be greater than the entry before it and "
                    "less than num_layers({})",
                    i, layer, s.num_layers);
      rules.require(!taken[at(layer)], "layer_variants: layer {} is in two of them", layer);
      taken[at(layer)] = true;
      previous = layer;
    }
  }
}

void check_sparse(const ModelSpec& s, const Rules& rules) {
  if (s.sparse_attention)
    rules.require(!s.mla || s.mla->q_lora_rank,
                  "sparse_attention with mla needs a q_lora_rank, which its indexer reads");
  if (!s.compressed_attention) return;
  const CompressedAttentionSpec& own = *s.compressed_attention;
  rules.require(!s.mla && s.num_kv_heads == 1,
                "compressed_attention has one key for all heads: num_kv_heads must be 1, not {}, "
                "and mla is not given",
                s.num_kv_heads);
  rules.require(own.ratios.size() == static_cast<std::size_t>(s.num_layers),
                "compressed_attention.ratios has {} entries, but num_layers is {}",
                own.ratios.size(), s.num_layers);
  rules.require(s.num_heads % own.output_groups == 0,
                "num_heads({}) must be a multiple of compressed_attention.output_groups({}); "
                "nearest: {}",
                s.num_heads, own.output_groups, nearest_divisor(s.num_heads, own.output_groups));
}

void check_mla(const ModelSpec& s, const Rules& rules) {
  if (!s.mla) return;
  const int qk = s.mla->qk_nope_head_size + s.mla->qk_rope_head_size;
  rules.require(s.head_size == qk,
                "head_size({}) must be mla.qk_nope_head_size({}) + mla.qk_rope_head_size({}) = {}",
                s.head_size, s.mla->qk_nope_head_size, s.mla->qk_rope_head_size, qk);
  rules.require(s.num_kv_heads == s.num_heads,
                "with mla every head has its own keys: num_kv_heads({}) must be num_heads({})",
                s.num_kv_heads, s.num_heads);
  rules.require(!s.rope_size, "rope_size is given, but mla has qk_rope_head_size");
  rules.require(!has_mixer(s, Mixer::Sliding) && !has_mixer(s, Mixer::Chunked),
                "layer_pattern: sliding and chunked layers are not supported with mla");
  rules.require(!s.qk_norm && !s.attention_sinks,
                "qk_norm and attention_sinks are not supported with mla");
}

void check_router(const MoeSpec& moe, const Rules& rules) {
  const RouterSpec& router = moe.router;
  rules.require(moe.num_experts % router.num_groups == 0,
                "moe: num_experts({}) must be a multiple of router.num_groups({}); nearest: {}",
                moe.num_experts, router.num_groups,
                nearest_divisor(moe.num_experts, router.num_groups));
  rules.require(router.top_groups <= router.num_groups,
                "moe.router: top_groups({}) exceeds num_groups({})", router.top_groups,
                router.num_groups);
  const int eligible = moe.num_experts / router.num_groups * router.top_groups;
  rules.require(moe.top_k <= eligible,
                "moe: top_k({}) exceeds the {} experts that a token may choose from", moe.top_k,
                eligible);
}

void check_dense_layers(const ModelSpec& s, const Rules& rules) {
  const std::vector<int>& dense = s.moe->dense_layers;
  rules.require(s.ffn_pattern.empty() || dense.empty(),
                "ffn_pattern says which layers are dense, so moe.dense_layers must be empty");
  int previous = -1;
  for (const int layer : dense) {
    rules.require(layer > previous && layer < s.num_layers,
                  "moe.dense_layers: {} must be greater than the entry before it and less than "
                  "num_layers({})",
                  layer, s.num_layers);
    previous = layer;
  }
  rules.require(dense.size() < static_cast<std::size_t>(s.num_layers),
                "moe is given, but moe.dense_layers lists all {} layers; remove moe", s.num_layers);
}

void check_ffn(const ModelSpec& s, const Rules& rules) {
  rules.require(s.activation != ActivationKind::ClampedSilu || s.mlp == Mlp::Gated,
                "activation clamped_silu needs mlp = gated");
  if (s.moe) {
    check_router(*s.moe, rules);
    check_dense_layers(s, rules);
  }
  int dense = 0, experts = 0;
  bool sized = true;
  for (int layer = 0; layer < s.num_layers; ++layer) {
    const FeedForward ffn = ffn_of_layer(s, layer);
    experts += ffn == FeedForward::Moe ? 1 : 0;
    if (ffn != FeedForward::Dense) continue;
    ++dense;
    const LayerVariant* variant = variant_of_layer(s, layer);
    sized = sized && (s.ffn_size > 0 || (variant != nullptr && variant->ffn_size));
  }
  rules.require(sized, "ffn_size is 0, but {} of {} layers have a dense FFN", dense, s.num_layers);
  rules.require((experts > 0) == s.moe.has_value(), "moe is {}, but ffn_pattern has {} moe layer",
                s.moe ? "given" : "missing", experts > 0 ? "a" : "no");
  if (!s.moe) return;
  rules.require(!s.moe->shared_expert_gate || s.moe->shared_expert_ffn_size > 0,
                "moe.shared_expert_gate needs a shared expert: set shared_expert_ffn_size");
  rules.require(!s.moe->latent_norm || s.moe->latent_size,
                "moe.latent_norm needs latent experts: set latent_size");
}

void check_encoder(const ModelSpec& s, const Rules& rules) {
  rules.require(s.causal == (s.num_classes == 0),
                "causal = {} with num_classes = {}: an encoder (causal = false) ends in a "
                "classifier, so num_classes must be at least 1, and a causal model has none",
                s.causal, s.num_classes);
  if (s.causal) {
    rules.require(!s.pooler, "pooler needs a classifier: causal = false and num_classes >= 1");
    return;
  }
  rules.require(!s.tied_embeddings,
                "tied_embeddings ties a language head, but num_classes({}) asks for a classifier",
                s.num_classes);
  rules.require(!s.mla && s.mtp_layers == 0 && !has_mixer(s, Mixer::Linear) && !s.mamba,
                "mla, mtp_layers, linear attention and mamba need a causal model");
}

void check_adapters(const ModelSpec& s, const Rules& rules) {
  if (!s.adapters) return;
  const std::vector<std::string> known = adaptable_modules(s);
  rules.require(!s.adapters->modules.empty(),
                "adapters.modules is empty: name linears that have adapters, of {}",
                fmt::join(known, ", "));
  for (const std::string& module : s.adapters->modules) {
    rules.require(std::ranges::find(known, module) != known.end(),
                  "adapters.modules: '{}' is no linear of the model's layers, which have {}; "
                  "nearest: '{}'",
                  module, fmt::join(known, ", "), nearest_choice(module, known));
    rules.require(std::ranges::count(s.adapters->modules, module) == 1,
                  "adapters.modules names '{}' twice", module);
    for (const std::string& part : parts_of_module(module))
      rules.require(!has_adapters(*s.adapters, part),
                    "adapters.modules has '{}' and '{}', which is a part of it; keep one", module,
                    part);
  }
}

/// What a token's values and all parameters come to.
void check_sizes(const ModelSpec& s, const Rules& rules) {
  const auto width = [&](const char* names, std::int64_t number, std::int64_t size) {
    rules.require(number * size <= limits::kWidth, "{} = {} * {} = {} must be at most {}", names,
                  number, size, number * size, limits::kWidth);
    return static_cast<double>(number * size);
  };
  double attention = width("num_heads * head_size", s.num_heads, s.head_size);
  if (s.mla) width("num_heads * mla.v_head_size", s.num_heads, s.mla->v_head_size);
  if (const auto& linear = s.linear_attention) {
    width("linear_attention.num_key_heads * key_head_size", linear->num_key_heads,
          linear->key_head_size);
    attention = std::max(attention, width("linear_attention.num_value_heads * value_head_size",
                                          linear->num_value_heads, linear->value_head_size));
  }
  double ffn = s.ffn_size;
  if (s.moe)
    ffn = std::max(ffn, s.moe->shared_expert_ffn_size +
                            static_cast<double>(s.moe->num_experts) * s.moe->expert_ffn_size);
  const double rows =
      2.0 * s.vocab_size +
      (s.positions == Positions::Learned ? static_cast<double>(s.max_positions) : 0);
  const double layer = 4 * attention + 3 * ffn;
  const double parameters = s.hidden_size * (rows + (s.num_layers + s.mtp_layers) * layer);
  rules.require(parameters <= limits::kParameters,
                "hidden_size({}) * (vocabulary and positions ({:g}) + num_layers({}) * widths of a "
                "layer ({:g})) = {:.3g} parameters; at most {:g} are supported",
                s.hidden_size, rows, s.num_layers, layer, parameters, limits::kParameters);
}

}  // namespace

void validate(const ModelSpec& spec, std::string_view file) {
  // Reading the written form back applies the bounds of every field.
  const Json written = write_json(spec);
  ModelSpec copy;
  JsonReader reader(written, std::string(file), "");
  fields(reader, copy);

  const Rules rules(file);
  rules.require(!spec.name.empty(), "name is empty");
  check_variants(spec, rules);
  check_sparse(spec, rules);
  for (const int layer : layers_of_each_kind(spec)) check_heads(spec_of_layer(spec, layer), rules);
  check_rope_scaling(spec, rules);
  check_layer_pattern(spec, rules);
  check_mla(spec, rules);
  check_ffn(spec, rules);
  check_encoder(spec, rules);
  check_sizes(spec, rules);
  check_adapters(spec, rules);
}

}  // namespace meshplan::models
