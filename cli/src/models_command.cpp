// meshplan models: the presets, or one model in detail.
#include <fmt/format.h>

#include "commands.hpp"
#include "exit_codes.hpp"
#include "inputs.hpp"
#include "reports/catalog_report.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  std::optional<std::string> name;
  bool json = false;
  bool schema = false;
};

int run(const Options& options) {
  if (options.schema) {
    fmt::print("{}", models::model_json_schema());
  } else if (options.name) {
    const models::ImportedModel model = load_model(*options.name);
    fmt::print("{}", options.json ? reports::model_json(model.spec, model.assumptions)
                                  : reports::model_text(model.spec, model.assumptions));
  } else {
    std::vector<models::ModelSpec> presets;
    for (const std::string& name : models::preset_names())
      presets.push_back(models::load_preset(name));
    fmt::print("{}", options.json ? reports::models_json(presets) : reports::models_text(presets));
  }
  return kDone;
}

}  // namespace

void add_models_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("models", "List the models, or show one layer by layer")
      .positional("model", options->name, "preset, model spec or Hugging Face config.json")
      .flag("--json", options->json, "print the result for programs")
      .flag("--schema", options->schema, "print the JSON Schema of model files")
      .examples(
          "  meshplan models\n"
          "  meshplan models llama3-8b\n"
          "  meshplan models path/to/config.json --json")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
