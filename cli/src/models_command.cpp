// meshplan models: the presets, or one model in detail.
#include "catalog_command.hpp"
#include "commands.hpp"
#include "inputs.hpp"
#include "reports/catalog_report.hpp"

namespace meshplan::cli {
namespace {

std::string one_model(const std::string& name, bool json) {
  const models::ImportedModel model = load_model(name);
  return json ? reports::model_json(model.spec, model.assumptions)
              : reports::model_text(model.spec, model.assumptions);
}

std::string all_models(bool json) {
  std::vector<models::ModelSpec> presets;
  for (const std::string& name : models::preset_names())
    presets.push_back(models::load_preset(name));
  return json ? reports::models_json(presets) : reports::models_text(presets);
}

}  // namespace

void add_models_command(CommandLine& line) {
  add_catalog_command(line, {.name = "models",
                             .summary = "List the models, or show one layer by layer",
                             .item = "model",
                             .item_help = "preset, model spec or Hugging Face config.json",
                             .schema_help = "print the JSON Schema of model files",
                             .examples = "  meshplan models\n"
                                         "  meshplan models llama3-8b\n"
                                         "  meshplan models path/to/config.json --json",
                             .schema = models::model_json_schema,
                             .one = one_model,
                             .all = all_models});
}

}  // namespace meshplan::cli
