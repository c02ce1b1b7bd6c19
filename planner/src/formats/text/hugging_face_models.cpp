#include "formats/text/hugging_face_models.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <vector>

#include "core/embedded_file.hpp"
#include "core/error.hpp"
#include "core/line.hpp"
#include "formats/text/imported.hpp"
#include "models/hugging_face.hpp"

namespace meshplan::planner {

std::span<const EmbeddedFile> data_presets();

namespace {

struct Checkpoints {
  std::set<std::string, std::less<>> variants;   // words of a name that say nothing of the shape
  std::set<std::string, std::less<>> quantized;  // words for weights of few bits
  nlohmann::json models;
  nlohmann::json others;  // that no plan can say, by a part of their names
};

const Checkpoints& known_checkpoints() {
  static const Checkpoints kAll = [] {
    for (const EmbeddedFile& file : data_presets()) {
      if (file.name != "hugging_face_models") continue;
      const nlohmann::json json = nlohmann::json::parse(file.text);
      return Checkpoints{.variants = json.at("variants"),
                         .quantized = json.at("quantized"),
                         .models = json.at("models"),
                         .others = json.at("others")};
    }
    throw InvariantError("no names of checkpoints are embedded");
  }();
  return kAll;
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

/// The name without folders, in lower case, and without the words of a set.
std::string base_name(std::string_view name, bool& is_quantized) {
  while (name.ends_with('/')) name.remove_suffix(1);
  name = name.substr(name.find_last_of('/') + 1);  // npos + 1 = 0
  std::string base;
  while (!name.empty()) {
    const std::string word = in_lower_case(name.substr(0, name.find('-')));
    name.remove_prefix(std::min(name.size(), word.size() + 1));
    const bool few_bits = known_checkpoints().quantized.contains(word);
    is_quantized = is_quantized || few_bits;
    if (few_bits || known_checkpoints().variants.contains(word)) continue;
    base += (base.empty() ? "" : "-") + word;
  }
  return base;
}

models::ModelSpec with_changes(const std::string& preset, const nlohmann::json& changes) {
  nlohmann::json spec = nlohmann::json::parse(models::to_json(models::load_preset(preset)));
  spec.merge_patch(changes);
  return models::parse_model_spec(spec.dump(), preset);
}

}  // namespace

std::optional<NamedModel> model_of_checkpoint(std::string_view name) {
  bool is_quantized = false;
  const std::string base = base_name(name, is_quantized);
  for (const nlohmann::json& entry : known_checkpoints().models) {
    const std::vector<std::string> names = entry.at("names");
    if (std::ranges::find(names, base) == names.end()) continue;
    if (entry.contains("config")) {
      NamedModel model{.spec = models::load_model(entry.at("config").dump(), base).spec,
                       .why = base,
                       .is_quantized = is_quantized};
      model.spec.name = base;
      return model;
    }
    const std::string preset = entry.at("preset");
    NamedModel model{.spec = models::load_preset(preset),
                     .why = "preset " + preset,
                     .is_quantized = is_quantized};
    if (entry.contains("with")) {
      model.spec = with_changes(preset, entry.at("with"));
      model.spec.name = base;
      model.why = base;
    }
    model.is_part = entry.contains("note");
    if (model.is_part) model.why += ", " + entry.at("note").get<std::string>();
    return model;
  }
  return std::nullopt;
}

NamedModel named_model(const ImportRequest& request, const std::string& name,
                       std::string_view key) {
  if (const auto config = named_file(request, name + "/config.json")) {
    models::ImportedModel model =
        models::import_hugging_face(*config, short_line(name) + "/config.json");
    return {.spec = std::move(model.spec), .why = "its config.json"};
  }
  if (auto known = model_of_checkpoint(name)) return std::move(*known);
  throw ConfigError(
      fmt::format("{}: {}: no preset has the model '{}'; give its config.json with --model FILE",
                  request.main, key, short_line(name)));
}

std::string kind_of_checkpoint(std::string_view name) {
  const std::string lower = in_lower_case(name);
  for (const nlohmann::json& other : known_checkpoints().others)
    if (lower.find(other.at("part").get<std::string>()) != std::string::npos)
      return other.at("what");
  return "";
}

std::string nearest_checkpoint(std::string_view name) {
  std::vector<std::string> names;
  for (const nlohmann::json& entry : known_checkpoints().models)
    for (const std::string each : entry.at("names")) names.push_back(each);
  return nearest_choice(in_lower_case(name), names);
}

}  // namespace meshplan::planner
