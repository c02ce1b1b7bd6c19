// meshplan models: the presets, or one model in detail.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "commands/catalog_command.hpp"
#include "commands/commands.hpp"
#include "options/inputs.hpp"
#include "reports/catalog_report.hpp"

namespace meshplan::cli {
namespace {

std::string listed(const std::vector<std::string>& names, bool json) {
  std::vector<models::ModelSpec> presets;
  for (const std::string& name : names) presets.push_back(models::load_preset(name));
  return json ? reports::models_json(presets) : reports::models_text(presets);
}

/// The presets in whose names a word is, unless it is a preset's whole name or a file.
std::vector<std::string> presets_with(const std::string& word) {
  std::vector<std::string> names = models::preset_names();
  if (std::ranges::find(names, word) != names.end() || std::filesystem::exists(word)) return {};
  std::erase_if(names,
                [&](const std::string& name) { return name.find(word) == std::string::npos; });
  return names;
}

std::string one_model(const std::string& name, const ModelReading& reading, bool json) {
  if (const std::vector<std::string> found = presets_with(name); !found.empty())
    return listed(found, json);
  const models::ImportedModel model = load_model(name, reading);
  return json ? reports::model_json(model) : reports::model_text(model);
}

}  // namespace

void add_models_command(CommandLine& line) {
  const auto reading = std::make_shared<ModelReading>();
  add_catalog_command(
      line,
      {.name = "models",
       .summary = "List the models, search them, or show one layer by layer",
       .item = "model",
       .item_help =
           "preset, model spec or Hugging Face config.json; or a part of presets' names (qwen3)",
       .items = models::preset_names(),
       .schema_help = "print the JSON Schema of model files",
       .examples = "  meshplan models\n"
                   "  meshplan models qwen3\n"
                   "  meshplan models llama3-8b\n"
                   "  meshplan models path/to/config.json --json",
       .add_options = [reading](Command& command) { add_model_reading(command, *reading); },
       .schema = models::model_json_schema,
       .one = [reading](const std::string& name,
                        bool json) { return one_model(name, *reading, json); },
       .all = [](bool json) { return listed(models::preset_names(), json); }});
}

}  // namespace meshplan::cli
