#include "models/model_spec.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <span>

#include "core/embedded_file.hpp"
#include "core/json_text.hpp"
#include "model_json.hpp"

namespace meshplan::models {

std::span<const EmbeddedFile> model_presets();  // generated from models/presets

LayerAttention attention_of_layer(const ModelSpec& spec, int layer) {
  if (spec.layer_pattern.empty()) return LayerAttention::Full;
  return spec.layer_pattern[static_cast<std::size_t>(layer) % spec.layer_pattern.size()];
}

std::string_view name_of_activation(ActivationKind kind) {
  return name_of(kind);
}

bool is_moe_layer(const ModelSpec& spec, int layer) {
  return spec.moe && !std::ranges::binary_search(spec.moe->dense_layers, layer);
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
