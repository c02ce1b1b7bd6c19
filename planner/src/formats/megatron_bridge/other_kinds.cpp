#include "formats/megatron_bridge/other_kinds.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "formats/megatron_bridge/field_values.hpp"
#include "formats/megatron_bridge/models.hpp"
#include "python/tree.hpp"

namespace meshplan::planner::bridge {
namespace {

constexpr std::array<const char*, 8> kSections = {"model",     "train",           "ddp",
                                                  "optimizer", "mixed_precision", "comm_overlap",
                                                  "dataset",   "tokenizer"};

struct OtherProvider {
  std::string_view part;  // of the class that a recipe builds its model with
  std::string_view what;
};
constexpr std::array kProviders = {
    OtherProvider{"Mamba", "a hybrid with layers of Mamba"},
    OtherProvider{"Hybrid", "a hybrid with layers of Mamba"},
    OtherProvider{"NemotronH", "a hybrid with layers of Mamba"},
    OtherProvider{"Nemotron3", "a hybrid with layers of Mamba"},
    OtherProvider{"VL", "a model of images and text"},
    OtherProvider{"Vision", "a model of images and text"},
    OtherProvider{"Omni", "a model of several modalities"},
    OtherProvider{"MIMO", "a model of several modalities"},
    OtherProvider{"Audio", "a model of sound"},
    OtherProvider{"Wan", "a model of moving images"},
    OtherProvider{"Flux", "a model of images"},
    OtherProvider{"DiT", "a model of images"},
    OtherProvider{"T5", "an encoder and a decoder (T5)"},
};
constexpr std::string_view kWhatIsRead = "recipes of Megatron-Bridge are read of decoders of text";

void refuse_touched(const Recipe& recipe, const Json& part, std::string_view what) {
  if (!part.is_object() || !part.contains(python::kTouched)) return;
  const Json& call = part.at(python::kTouched)[0];
  throw ConfigError(fmt::format("{}: '{}' may change {}, and what it calls is not among the files",
                                call.value(python::kPlace, recipe.file), shown(call), what));
}

}  // namespace

void require_understood(const Recipe& recipe) {
  const std::string name = python::call_name(recipe.tree);
  const bool is_container = std::ranges::any_of(
      recipe.classes, [](const std::string& each) { return each.ends_with("ConfigContainer"); });
  if (!is_container && name.ends_with("Config"))
    throw ConfigError(
        fmt::format("{}: {}() returns {}, no ConfigContainer", recipe.file, recipe.function, name));
  refuse_touched(recipe, recipe.tree, "the configuration");
  for (const char* section : kSections)
    if (recipe.tree.contains(section)) {
      refuse_touched(recipe, recipe.tree.at(section), section);
      const Json& part = recipe.tree.at(section);
      if (python::is_unknown(part) && section != std::string_view("mixed_precision"))
        throw ConfigError(fmt::format("{}: {}: '{}' is not understood",
                                      part.value(python::kPlace, recipe.file), section,
                                      shown(part)));
      if (part.is_object() && part.contains(python::kUnpacked))
        throw ConfigError(fmt::format("{}: {}: **{} is not understood", recipe.file, section,
                                      part.at(python::kUnpacked).get<std::string>()));
    }
}

void require_decoder_of_text(const Recipe& recipe, bool given) {
  if (!recipe.tree.contains("model") || recipe.tree.at("model").is_null())
    throw ConfigError(
        fmt::format("{}: {}() sets no model; name it with --model", recipe.file, recipe.function));
  const Json& model = recipe.tree.at("model");
  for (const OtherProvider& other : kProviders)
    for (const std::string& each : recipe.model_classes)
      if (each.find(other.part) != std::string::npos)
        throw ConfigError(
            fmt::format("{}: model = {}: is {}; {}", recipe.file, each, other.what, kWhatIsRead));
  if (!recipe.hub_name.empty()) {
    const HubModel known = hub_model(recipe.hub_name);
    if (!known.other.empty())
      throw ConfigError(fmt::format("{}: model = {}: is {}; {}", recipe.file, recipe.hub_name,
                                    known.other, kWhatIsRead));
    if (!known.spec && !given)
      throw ConfigError(fmt::format(
          "{}: model = {}: the model is described elsewhere, on the Hugging Face hub; give its "
          "config.json with --model; nearest known: {}",
          recipe.file, recipe.hub_name, nearest_hub_model(recipe.hub_name)));
  } else if (!given && !(model.contains("num_layers") && model.at("num_layers").is_number())) {
    throw ConfigError(fmt::format(
        "{}: model = {}: model.num_layers is not set; the model is described elsewhere: name it "
        "with --model",
        recipe.file, shown(model)));
  }
}

}  // namespace meshplan::planner::bridge
