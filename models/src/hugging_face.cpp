#include "models/hugging_face.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/relaxed_json.hpp"
#include "hf_config.hpp"

namespace meshplan::models {
namespace {

std::optional<HfFamily> find_family(std::string_view model_type) {
  // A multimodal gemma3 whose text_config leaves out its own type.
  if (model_type == "gemma3") model_type = "gemma3_text";
  for (const HfFamily& family : hf_families())
    if (family.model_type == model_type) return family;
  return std::nullopt;
}

std::string text_or_empty(const Json& object, const char* key, const std::string& file) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "";
  if (!found->is_string())
    throw ConfigError(fmt::format("{}: {}: expected a string, got {}", file, key, quoted(*found)));
  auto text = found->get<std::string>();
  require_line(text, fmt::format("{}: {}", file, key), limits::kNameBytes);
  return text;
}

/// The family that the file names, or that the user assumes for it.
HfFamily choose_family(const std::string& model_type, const std::string& file,
                       const std::string& assume) {
  const auto named = find_family(model_type);
  if (!assume.empty()) {
    const auto assumed = find_family(assume);
    if (!assumed)
      throw ConfigError(
          unknown_name_message("model_type to assume", assume, hugging_face_model_types()));
    if (named && named->model_type != assumed->model_type)
      throw ConfigError(fmt::format("{}: model_type is '{}', which is known; do not assume '{}'",
                                    file, model_type, assume));
    return *assumed;
  }
  if (named) return *named;
  throw ConfigError(fmt::format(
      "{}: {}; to read it as a type that it resembles, use --assume, e.g. --assume llama", file,
      model_type.empty()
          ? fmt::format("model_type is missing; known: {}",
                        fmt::join(hugging_face_model_types(), ", "))
          : unknown_name_message("model_type", model_type, hugging_face_model_types())));
}

const Json& parse_object(const Json& root, const std::string& file) {
  if (!root.is_object())
    throw ConfigError(fmt::format("{}: expected a JSON object, got {}", file, root.type_name()));
  return root;
}

}  // namespace

std::vector<std::string> hugging_face_model_types() {
  std::vector<std::string> names{"gemma3"};
  for (const HfFamily& family : hf_families()) names.emplace_back(family.model_type);
  std::ranges::sort(names);
  return names;
}

ImportedModel import_hugging_face(std::string_view text, const std::string& file,
                                  const std::string& assume) {
  const Json root = parse_json(with_named_infinities(text), file);
  parse_object(root, file);
  const bool nested = root.contains("text_config") && root["text_config"].is_object();
  const Json& object = nested ? root["text_config"] : root;

  std::string model_type = text_or_empty(object, "model_type", file);
  if (model_type.empty()) model_type = text_or_empty(root, "model_type", file);
  const HfFamily family = choose_family(model_type, file, assume);

  HfConfig config(object, file, nested ? "text_config" : "", std::string(family.model_type),
                  family.defaults);
  config.own_text("model_type");  // so that it is listed as read
  if (nested) config.assume("text_config is read, the rest of a multimodal model left out");
  if (!assume.empty() && assume != model_type)
    config.assume(fmt::format("model_type '{}' is read as '{}'", model_type, assume));

  ImportedModel model{.model_type = std::string(family.model_type), .is_text_tower = nested};
  model.spec.name = text_or_empty(root, "_name_or_path", file);
  if (model.spec.name.empty()) model.spec.name = model_type.empty() ? assume : model_type;
  family.fill(config, model.spec);
  validate(model.spec, file);
  config.report(model);
  return model;
}

ImportedModel load_model(std::string_view text, const std::string& file,
                         const std::string& assume) {
  const Json root = parse_json(with_named_infinities(text), file);
  parse_object(root, file);
  if (root.contains("schema_version")) {
    ImportedModel model;
    model.spec = parse_model_spec(text, file, &model.assumptions);
    return model;
  }
  if (!assume.empty() || root.contains("model_type") || root.contains("text_config"))
    return import_hugging_face(text, file, assume);
  throw ConfigError(
      fmt::format("{}: neither a meshplan model (no \"schema_version\") nor a Hugging Face config "
                  "(no \"model_type\"); add one of the two, or use --assume with a model_type",
                  file));
}

}  // namespace meshplan::models
