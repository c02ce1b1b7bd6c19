#include "models/model_spec.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <span>

#include "core/embedded_file.hpp"
#include "core/index.hpp"
#include "core/json_text.hpp"
#include "model_json.hpp"

namespace meshplan::models {

std::span<const EmbeddedFile> model_presets();  // generated from models/presets

Mixer mixer_of_layer(const ModelSpec& spec, int layer) {
  if (spec.layer_pattern.empty()) return Mixer::Full;
  return spec.layer_pattern[at(layer) % spec.layer_pattern.size()];
}

FeedForward ffn_of_layer(const ModelSpec& spec, int layer) {
  if (!spec.ffn_pattern.empty()) return spec.ffn_pattern[at(layer) % spec.ffn_pattern.size()];
  const bool moe = spec.moe && !std::ranges::binary_search(spec.moe->dense_layers, layer);
  return moe ? FeedForward::Moe : FeedForward::Dense;
}

bool is_moe_layer(const ModelSpec& spec, int layer) {
  return ffn_of_layer(spec, layer) == FeedForward::Moe;
}

int layer_of_prediction(const ModelSpec& spec) {
  const int last = spec.num_layers - 1;
  int best = last;
  const auto worth = [&](int layer) {
    return (mixer_of_layer(spec, layer) == Mixer::Full ? 2 : 0) +
           (ffn_of_layer(spec, layer) == ffn_of_layer(spec, last) ? 1 : 0);
  };
  for (int layer = last; layer >= 0; --layer)
    if (worth(layer) > worth(best)) best = layer;
  return best;
}

FeedForward ffn_of_prediction(const ModelSpec& spec) {
  const FeedForward ffn = ffn_of_layer(spec, layer_of_prediction(spec));
  if (ffn != FeedForward::None) return ffn;
  return spec.moe ? FeedForward::Moe : FeedForward::Dense;
}

bool predicts_with_experts(const ModelSpec& spec) {
  return spec.mtp_layers > 0 && ffn_of_prediction(spec) == FeedForward::Moe;
}

bool ending_reads_embedding(const ModelSpec& spec) {
  return spec.tied_embeddings || spec.mtp_layers > 0;
}

const LayerVariant* variant_of_layer(const ModelSpec& spec, int layer) {
  for (const LayerVariant& variant : spec.layer_variants)
    if (std::ranges::binary_search(variant.layers, layer)) return &variant;
  return nullptr;
}

ModelSpec spec_of_layer(const ModelSpec& spec, int layer) {
  ModelSpec own = spec;
  if (spec.compressed_attention && !spec.compressed_attention->ratios.empty())
    own.compressed_attention->ratios = {spec.compressed_attention->ratios[at(layer)]};
  const LayerVariant* variant = variant_of_layer(spec, layer);
  if (variant == nullptr) return own;
  own.num_heads = variant->num_heads.value_or(spec.num_heads);
  own.num_kv_heads = variant->num_kv_heads.value_or(spec.num_kv_heads);
  own.head_size = variant->head_size.value_or(spec.head_size);
  if (variant->value_head_size) own.value_head_size = variant->value_head_size;
  own.ffn_size = variant->ffn_size.value_or(spec.ffn_size);
  own.window = variant->window.value_or(spec.window);
  if (variant->rope_base) {
    own.rope_base = *variant->rope_base;
    own.local_rope_base.reset();
  }
  if (variant->rope_size) own.rope_size = variant->rope_size;
  own.keys_are_values = variant->keys_are_values.value_or(spec.keys_are_values);
  own.borrows_keys = variant->borrows_keys.value_or(spec.borrows_keys);
  if (variant->sees_all == true) own.sparse_attention.reset();
  if (own.sparse_attention) own.sparse_attention->borrowed = variant->borrows_choices == true;
  if (variant->rotates == false) own.positions = Positions::None;
  return own;
}

bool of_one_kind(const ModelSpec& spec, int a, int b) {
  const auto ratio = [&](int layer) {
    return spec.compressed_attention ? spec.compressed_attention->ratios[at(layer)] : 0;
  };
  return mixer_of_layer(spec, a) == mixer_of_layer(spec, b) &&
         ffn_of_layer(spec, a) == ffn_of_layer(spec, b) &&
         variant_of_layer(spec, a) == variant_of_layer(spec, b) && ratio(a) == ratio(b);
}

std::vector<int> layers_of_each_kind(const ModelSpec& spec) {
  std::vector<int> first;
  for (int layer = 0; layer < spec.num_layers; ++layer)
    if (std::ranges::none_of(first, [&](int known) { return of_one_kind(spec, known, layer); }))
      first.push_back(layer);
  return first;
}

std::vector<Mixer> mixers_of(const ModelSpec& spec) {
  if (spec.layer_pattern.empty()) return {Mixer::Full};
  std::vector<Mixer> mixers;
  for (const Mixer mixer : spec.layer_pattern)
    if (std::ranges::find(mixers, mixer) == mixers.end()) mixers.push_back(mixer);
  return mixers;
}

bool has_mixer(const ModelSpec& spec, Mixer mixer) {
  if (spec.layer_pattern.empty()) return mixer == Mixer::Full;
  return std::ranges::find(spec.layer_pattern, mixer) != spec.layer_pattern.end();
}

std::string_view name_of_activation(ActivationKind kind) {
  return name_of(kind);
}

std::string_view name_of_mixer(Mixer mixer) {
  return name_of(mixer);
}

ModelSpec parse_model_spec(std::string_view text, const std::string& file,
                           std::vector<std::string>* assumed) {
  ModelSpec spec = read_json<ModelSpec>(text, file, assumed);
  validate(spec, file);
  return spec;
}

std::string to_json(const ModelSpec& spec) {
  return json_text(write_json(spec)) + "\n";
}

std::string model_json_schema() {
  Json schema = json_schema<ModelSpec>();
  Json root{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"title", "meshplan model"}};
  root.update(schema);
  return root.dump(2) + "\n";
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& preset : model_presets()) names.emplace_back(preset.name);
  std::ranges::sort(names);
  return names;
}

ModelSpec load_preset(std::string_view name) {
  for (const EmbeddedFile& preset : model_presets())
    if (preset.name == name)
      return parse_model_spec(preset.text, fmt::format("model preset '{}'", name));
  throw ConfigError(unknown_name_message("model preset", name, preset_names()));
}

}  // namespace meshplan::models
