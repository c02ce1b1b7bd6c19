#include "formats/megatron_launch/vocabulary.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "core/embedded_file.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "formats/text/hugging_face_models.hpp"
#include "models/model_spec.hpp"

namespace meshplan::planner {

std::span<const EmbeddedFile> data_presets();

namespace megatron {
namespace {

struct Tokenizer {
  std::string name;  // a type, or a part of a model's name in lower case
  int size = 0;
  bool adds_extra = false;      // --extra-vocab-size
  std::optional<int> if_extra;  // this one only
  std::string source;
};
struct Tokenizers {
  std::vector<Tokenizer> types;
  std::vector<Tokenizer> models;
};

std::vector<Tokenizer> tokenizers_of(const nlohmann::json& list) {
  std::vector<Tokenizer> all;
  for (const nlohmann::json& entry : list) {
    Tokenizer tokenizer{.name = entry.at("name"),
                        .size = entry.at("size"),
                        .adds_extra = entry.value("extra", false),
                        .if_extra = {},
                        .source = entry.at("source")};
    if (entry.contains("at_extra")) tokenizer.if_extra = entry.at("at_extra").get<int>();
    all.push_back(std::move(tokenizer));
  }
  return all;
}

const Tokenizers& tokenizers() {
  static const Tokenizers kAll = [] {
    for (const EmbeddedFile& file : data_presets()) {
      if (file.name != "tokenizers") continue;
      const nlohmann::json json = nlohmann::json::parse(file.text);
      return Tokenizers{tokenizers_of(json.at("types")), tokenizers_of(json.at("models"))};
    }
    throw InvariantError("no tokenizers are embedded");
  }();
  return kAll;
}

struct Vocabulary {
  int size;
  std::string why;
};

/// The only operand, as far as it can be known.
std::string operand(const Argument* argument) {
  return argument != nullptr && argument->values.size() == 1 ? argument->values.front().text
                                                             : std::string();
}

std::optional<Vocabulary> of_type(Reading& reading, const std::string& type) {
  const Argument* given = reading.find("--extra-vocab-size");
  const int extra =
      given != nullptr ? static_cast<int>(reading.integer(*given, 0, limits::kVocabulary)) : 0;
  for (const Tokenizer& tokenizer : tokenizers().types) {
    if (tokenizer.name != type || (tokenizer.if_extra && *tokenizer.if_extra != extra)) continue;
    const int size = tokenizer.size + (tokenizer.adds_extra ? extra : 0);
    return Vocabulary{
        size,
        fmt::format("{}'s{}: {}", type,
                    tokenizer.adds_extra && extra > 0 ? fmt::format(" and {} extra", extra) : "",
                    tokenizer.source)};
  }
  return std::nullopt;
}

std::optional<Vocabulary> of_model(const std::string& name) {
  if (const auto model = model_of_checkpoint(name))
    return Vocabulary{model->spec.vocab_size,
                      fmt::format("{}'s: {}", short_line(name), model->why)};
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  for (const Tokenizer& tokenizer : tokenizers().models)
    if (lower.find(tokenizer.name) != std::string::npos)
      return Vocabulary{tokenizer.size, fmt::format("{}'s: {}", tokenizer.name, tokenizer.source)};
  return std::nullopt;
}

/// Distance of two shapes: logarithms of widths and depth.
double distance(const Reading& reading, const models::ModelSpec& b) {
  const models::ModelSpec& a = reading.plan.model;
  const auto ratio = [](int x, int y) {
    return std::abs(std::log(static_cast<double>(std::max(1, x)) / std::max(1, y)));
  };
  return ratio(a.hidden_size, b.hidden_size) + ratio(a.num_layers, b.num_layers) +
         ratio(a.ffn_size, b.ffn_size) + ratio(a.num_heads, b.num_heads) +
         (reading.has("--swiglu") == (b.mlp == models::Mlp::Gated) ? 0 : 1) +
         (reading.has("--num-experts") == b.moe.has_value() ? 0 : 1);
}

Vocabulary of_nearest_preset(const Reading& reading) {
  Vocabulary nearest{0, ""};
  double least = 1e300;
  for (const std::string& name : models::preset_names()) {
    if (name.starts_with("tiny") || name.starts_with("small")) continue;
    const models::ModelSpec preset = models::load_preset(name);
    if (!preset.causal) continue;
    const double far = distance(reading, preset);
    if (far >= least) continue;
    least = far;
    nearest = {preset.vocab_size,
               fmt::format("of {}, the preset nearest in shape, as the tokenizer's files are not "
                           "read; --vocab-size in the script says otherwise",
                           name)};
  }
  return nearest;
}

Vocabulary vocabulary_of(Reading& reading) {
  if (const Argument* padded = reading.find("--padded-vocab-size"); padded != nullptr)
    if (const auto size = reading.integer(*padded, 0, limits::kVocabulary); size > 0)
      return {static_cast<int>(size), "--padded-vocab-size"};
  for (const char* flag : {"--patch-tokenizer-type", "--tokenizer-type"})
    if (const std::string type = operand(reading.find(flag)); !type.empty())
      if (auto found = of_type(reading, type)) return *found;
  // GPT-2's files are what --vocab-file and --merge-file name in most scripts.
  if (reading.has("--merge-file")) return {50257, "GPT-2's, which --merge-file stands for"};
  for (const char* flag : {"--tokenizer-model", "--tokenizer-name-or-path", "--load"})
    if (const std::string name = operand(reading.find(flag)); !name.empty())
      if (auto found = of_model(name)) return *found;
  return of_nearest_preset(reading);
}

}  // namespace

void assume_vocabulary(Reading& reading) {
  const Vocabulary vocabulary = vocabulary_of(reading);
  reading.plan.model.vocab_size = vocabulary.size;
  reading.assume(fmt::format("vocab_size = {} ({})", vocabulary.size, vocabulary.why));
}

}  // namespace megatron
}  // namespace meshplan::planner
