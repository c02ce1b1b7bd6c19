// meshplan models: the presets, or one model in detail.
#include <memory>

#include "commands/catalog_command.hpp"
#include "commands/commands.hpp"
#include "options/inputs.hpp"
#include "reports/catalog_report.hpp"

namespace meshplan::cli {
namespace {

std::string one_model(const std::string& name, const ModelReading& reading, bool json) {
  const models::ImportedModel model = load_model(name, reading);
  return json ? reports::model_json(model) : reports::model_text(model);
}

std::string all_models(bool json) {
  std::vector<models::ModelSpec> presets;
  for (const std::string& name : models::preset_names())
    presets.push_back(models::load_preset(name));
  return json ? reports::models_json(presets) : reports::models_text(presets);
}

}  // namespace

void add_models_command(CommandLine& line) {
  const auto reading = std::make_shared<ModelReading>();
  add_catalog_command(
      line, {.name = "models",
             .summary = "List the models, or show one layer by layer",
             .item = "model",
             .item_help = "preset, model spec or Hugging Face config.json",
             .items = models::preset_names(),
             .schema_help = "print the JSON Schema of model files",
             .examples = "  meshplan models\n"
                         "  meshplan models llama3-8b\n"
                         "  meshplan models path/to/config.json --json",
             .add_options = [reading](Command& command) { add_model_reading(command, *reading); },
             .schema = models::model_json_schema,
             .one = [reading](const std::string& name,
                              bool json) { return one_model(name, *reading, json); },
             .all = all_models});
}

}  // namespace meshplan::cli
