// The rules between the fields of a ModelSpec; the bounds of single fields stand in model_json.hpp.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

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

bool has_layer(const ModelSpec& spec, LayerAttention kind) {
  return std::ranges::find(spec.layer_pattern, kind) != spec.layer_pattern.end();
}

int rotated_size(const ModelSpec& s) {
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
      scaling.kind != Llama3 || scaling.high_frequency_factor > scaling.low_frequency_factor,
      "rope_scaling: high_frequency_factor({}) must be greater than "
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

void check_layer_pattern(const ModelSpec& s, const Rules& rules) {
  const bool sliding = has_layer(s, LayerAttention::Sliding);
  const bool linear = has_layer(s, LayerAttention::Linear);
  rules.require(s.layer_pattern.size() <= static_cast<std::size_t>(s.num_layers),
                "layer_pattern has {} entries, but num_layers is {}", s.layer_pattern.size(),
                s.num_layers);
  rules.require(!sliding || s.window > 0,
                "layer_pattern has sliding layers, so window must be at least 1, not {}", s.window);
  rules.require(sliding || s.window == 0,
                "window is {}, but layer_pattern has no sliding layer; add one or set window = 0",
                s.window);
  rules.require(sliding || !s.local_rope_base,
                "local_rope_base is given, but layer_pattern has no sliding layer");
  rules.require(linear == s.linear_attention.has_value(),
                "linear_attention is {}, but layer_pattern has {} linear layer",
                s.linear_attention ? "given" : "missing", linear ? "a" : "no");
  if (!s.linear_attention) return;
  rules.require(
      s.linear_attention->num_value_heads % s.linear_attention->num_key_heads == 0,
      "linear_attention: num_value_heads({}) must be a multiple of num_key_heads({}); nearest: "
      "num_key_heads = {}",
      s.linear_attention->num_value_heads, s.linear_attention->num_key_heads,
      nearest_divisor(s.linear_attention->num_value_heads, s.linear_attention->num_key_heads));
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
  rules.require(s.layer_pattern.empty(), "layer_pattern is not supported with mla");
  rules.require(!s.qk_norm && !s.attention_sinks && !s.attention_output_gate,
                "qk_norm, attention_sinks and attention_output_gate are not supported with mla");
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

void check_ffn(const ModelSpec& s, const Rules& rules) {
  const int dense = s.moe ? static_cast<int>(s.moe->dense_layers.size()) : s.num_layers;
  rules.require(dense == 0 || s.ffn_size > 0, "ffn_size is 0, but {} of {} layers have a dense FFN",
                dense, s.num_layers);
  rules.require(s.activation != ActivationKind::ClampedSilu || s.mlp == Mlp::Gated,
                "activation clamped_silu needs mlp = gated");
  if (!s.moe) return;
  check_router(*s.moe, rules);
  int previous = -1;
  for (const int layer : s.moe->dense_layers) {
    rules.require(layer > previous && layer < s.num_layers,
                  "moe.dense_layers: {} must be greater than the entry before it and less than "
                  "num_layers({})",
                  layer, s.num_layers);
    previous = layer;
  }
  rules.require(dense < s.num_layers,
                "moe is given, but moe.dense_layers lists all {} layers; remove moe", s.num_layers);
  rules.require(!s.moe->shared_expert_gate || s.moe->shared_expert_ffn_size > 0,
                "moe.shared_expert_gate needs a shared expert: set shared_expert_ffn_size");
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
  rules.require(s.layer_pattern.empty() && !s.mla && s.mtp_layers == 0,
                "layer_pattern, mla and mtp_layers need a causal model");
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
  check_heads(spec, rules);
  check_rope_scaling(spec, rules);
  check_layer_pattern(spec, rules);
  check_mla(spec, rules);
  check_ffn(spec, rules);
  check_encoder(spec, rules);
  check_sizes(spec, rules);
  check_adapters(spec, rules);
}

}  // namespace meshplan::models
