#include "models/hugging_face.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/relaxed_json.hpp"
#include "families/families.hpp"
#include "hf/family_parts.hpp"
#include "models/describe.hpp"

namespace meshplan::models {
namespace {

/// Other names of a family's own.
constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kAliases{
    {{"bailing_hybrid", "bailing_moe"},
     {"bailing_moe_linear", "bailing_moe"},
     {"bailing_moe_v2", "bailing_moe"},
     {"camembert", "roberta"},
     {"deci", "nemotron-nas"},
     {"exaone4_5", "exaone4"},
     {"exaone4_5_text", "exaone4"},
     {"internlm", "internlm2"},
     {"kimi_k3", "kimi_linear"},
     {"llava", "llama"},
     {"minimax_m1", "minimax"},
     {"minimax_text_01", "minimax"},
     {"minimax_m3_vl", "minimax_m3"},
     {"mt5", "t5"},
     {"nemotron_nas", "nemotron-nas"},
     {"phi3_v", "phi3"},
     {"phi4", "phi3"},
     {"phi4mm", "phi3"},
     {"qwen2_5_omni_text", "qwen2"},
     {"qwen3_omni_moe_text", "qwen3_moe"},
     {"umt5", "t5"}}};

/// Also of a multimodal model whose text_config leaves out its own type: "gemma3" for
/// "gemma3_text".
std::optional<HfFamily> find_family(std::string_view model_type) {
  for (const auto& [alias, family] : kAliases)
    if (alias == model_type) model_type = family;
  const std::string text = std::string(model_type) + "_text";
  for (const HfFamily& family : hf_families())
    if (family.model_type == model_type || family.model_type == text) return family;
  return std::nullopt;
}

/// "DeepseekV4ForCausalLM" and "deepseek_v4" as one word.
std::string bare_name(std::string_view name) {
  constexpr std::string_view kText = "_text";
  if (name.ends_with(kText)) name.remove_suffix(kText.size());
  for (const std::string_view task : {"ForCausalLM", "ForConditionalGeneration", "LMHeadModel",
                                      "ForSequenceClassification", "ForMaskedLM", "Model"})
    if (name.ends_with(task)) name.remove_suffix(task.size());
  std::string bare;
  for (const char letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0)
      bare += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return bare;
}

/// Engines that give a model a type of their own leave its class in `architectures`.
std::optional<HfFamily> family_of_architecture(const Json& object) {
  const auto found = object.find("architectures");
  if (found == object.end() || !found->is_array() || found->empty() || !found->front().is_string())
    return std::nullopt;
  const std::string wanted = bare_name(found->front().get<std::string>());
  for (const HfFamily& family : hf_families())
    if (bare_name(family.model_type) == wanted) return family;
  return std::nullopt;
}

/// The family whose words a file of an unknown type has, and what it says in them.
struct Resemblance {
  std::string model_type;
  std::string parts;
  std::vector<std::string> left_out;  // keys of the file
  std::size_t read = 0;
  std::size_t assumed = 0;

  /// What the type's words do not cover; between equals a plain decoder is meant.
  std::size_t misfit() const {
    constexpr std::size_t kPlain = 4;
    return left_out.size() + assumed + (model_type == "llama" ? 0 : kPlain);
  }
};

std::optional<Resemblance> nearest_family(const Json& object, const std::string& file,
                                          const std::string& path) {
  std::optional<Resemblance> best;
  for (const HfFamily& family : hf_families()) {
    try {
      HfConfig config(object, file, path, std::string(family.model_type),
                      hf_defaults(family.model_type));
      config.own_text("model_type");
      ImportedModel model;
      family.fill(config, model.spec);
      model.spec.name = family.model_type;
      validate(model.spec, file);
      config.report(model);
      Resemblance own{.model_type = std::string(family.model_type),
                      .parts = describe_parts(model.spec),
                      .left_out = {},
                      .read = model.read.size(),
                      .assumed = model.assumptions.size()};
      for (const IgnoredKey& key : model.ignored)
        if (key.reason.starts_with("unknown")) own.left_out.push_back(key.key);
      if (!model.spec.causal) continue;  // a decoder is what is trained
      const auto worse = [](const Resemblance& a, const Resemblance& b) {
        return a.misfit() != b.misfit() ? a.misfit() > b.misfit() : a.read < b.read;
      };
      if (!best || worse(*best, own)) best = std::move(own);
    } catch (const ConfigError&) {
      continue;  // it has other words
    }
  }
  return best;
}

/// What a file of an unknown type seems to be, and how to read it so.
std::string what_resembles(const Json& object, const std::string& file, const std::string& path,
                           const std::string& model_type) {
  const std::vector<std::string> known = hugging_face_model_types();
  const std::string name = model_type.empty()
                               ? "model_type is missing"
                               : fmt::format("unknown model_type '{}'", short_line(model_type));
  const auto nearest = nearest_family(object, file, path);
  if (!nearest)
    return fmt::format(
        "{}, and no known one has the words that its keys are; to read it as a type "
        "that it resembles, use --assume, e.g. --assume {}",
        name, model_type.empty() ? "llama" : nearest_choice(model_type, known));
  constexpr std::size_t kMost = 8;
  std::vector<std::string> left_out = nearest->left_out;
  const std::size_t more = left_out.size() > kMost ? left_out.size() - kMost : 0;
  if (more > 0) left_out.resize(kMost);
  for (std::string& key : left_out) key = short_line(key);
  const std::string rest = more > 0 ? fmt::format(" and {} more", more) : "";
  return fmt::format("{}; of {} known ones its keys read most like '{}': {}{}; use --assume {}",
                     name, known.size(), nearest->model_type, nearest->parts,
                     left_out.empty()
                         ? std::string()
                         : fmt::format(", without {}{}", fmt::join(left_out, ", "), rest),
                     nearest->model_type);
}

/// Is it a path of somebody's disk, and no name of a checkpoint ("org/model")?
bool is_path(std::string_view name) {
  return name.starts_with('/') || name.starts_with('.') || name.starts_with('~') ||
         name.find('\\') != std::string_view::npos || std::ranges::count(name, '/') > 1;
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
HfFamily choose_family(const Json& object, const std::string& path, const std::string& model_type,
                       const std::string& file, const std::string& assume) {
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
  if (const auto by_class = family_of_architecture(object)) return *by_class;
  throw ConfigError(fmt::format("{}: {}", file, what_resembles(object, file, path, model_type)));
}

/// Of a model that also speaks (Qwen2.5-Omni, Qwen3-Omni) the part that reads and thinks.
std::string path_of_thinker(const Json& root) {
  constexpr const char* kThinker = "thinker_config";
  const bool thinks = root.contains(kThinker) && root[kThinker].is_object();
  return thinks && root[kThinker].contains("text_config") ? kThinker : "";
}

/// Where the decoder of a multimodal model stands; "" = the file is one.
std::string path_of_text(const Json& root) {
  for (const char* path : {"text_config", "llm_config", "language_config"})
    if (root.contains(path) && root[path].is_object()) return path;
  return "";
}

const Json& parse_object(const Json& root, const std::string& file) {
  if (!root.is_object())
    throw ConfigError(fmt::format("{}: expected a JSON object, got {}", file, root.type_name()));
  return root;
}

}  // namespace

std::vector<std::string> hugging_face_model_types() {
  std::vector<std::string> names;
  for (const auto& [alias, family] : kAliases) names.emplace_back(alias);
  constexpr std::string_view kText = "_text";
  for (const HfFamily& family : hf_families()) {
    names.emplace_back(family.model_type);
    if (family.model_type.ends_with(kText))
      names.emplace_back(family.model_type.substr(0, family.model_type.size() - kText.size()));
  }
  std::ranges::sort(names);
  return names;
}

ImportedModel import_hugging_face(std::string_view text, const std::string& file,
                                  const std::string& assume) {
  const Json whole = parse_json(with_named_infinities(text), file);
  parse_object(whole, file);
  const std::string thinker = path_of_thinker(whole);
  const Json& root = thinker.empty() ? whole : whole[thinker];
  const std::string inside = path_of_text(root);
  const bool nested = !inside.empty();
  const std::string path = thinker.empty() ? inside : fmt::format("{}.{}", thinker, inside);
  const Json& object = nested ? root[inside] : root;

  std::string model_type = text_or_empty(object, "model_type", file);
  if (model_type.empty()) model_type = text_or_empty(root, "model_type", file);
  const HfFamily family = choose_family(object, path, model_type, file, assume);

  HfConfig config(object, file, path, std::string(family.model_type),
                  hf_defaults(family.model_type));
  config.own_text("model_type");  // so that it is listed as read
  if (!assume.empty() && assume != model_type)
    config.assume(fmt::format("model_type '{}' is read as '{}'", model_type, assume));
  else if (assume.empty() && !find_family(model_type))
    config.assume(fmt::format("model_type '{}' is read as '{}', as architectures says", model_type,
                              family.model_type));

  ImportedModel model{.model_type = std::string(family.model_type), .is_text_tower = nested};
  model.spec.name = text_or_empty(whole, "_name_or_path", file);
  if (model.spec.name.empty() || is_path(model.spec.name))
    model.spec.name = model_type.empty() ? assume : model_type;
  family.fill(config, model.spec);
  if (nested && root.contains("tie_word_embeddings") && root["tie_word_embeddings"].is_boolean())
    model.spec.tied_embeddings = root["tie_word_embeddings"].get<bool>();
  if (root.contains("vision_config")) {
    const HfConfig around(root, file, thinker, std::string(family.model_type), Json::object());
    model.spec.vision = read_vision(around, text_or_empty(root, "model_type", file), model.spec);
  }
  if (nested)
    config.assume(model.spec.vision
                      ? fmt::format("{} is the decoder; vision_config is a tower beside it", path)
                      : fmt::format("{} is read, the rest of a multimodal model left out", path));
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
  if (!assume.empty() || root.contains("model_type") || root.contains("text_config") ||
      root.contains("thinker_config"))
    return import_hugging_face(text, file, assume);
  throw ConfigError(
      fmt::format("{}: neither a meshplan model (no \"schema_version\") nor a Hugging Face config "
                  "(no \"model_type\"); add one of the two, or use --assume with a model_type",
                  file));
}

}  // namespace meshplan::models
