// Models and clusters by preset name or file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/hugging_face.hpp"
#include "options/command_line.hpp"
#include "program/plan/plan.hpp"
#include "sim/anchors/adjustment.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::cli {

/// How a model is read that cannot be planned as it is published.
struct ModelReading {
  std::optional<std::string> assume;  // the model_type of a config whose own is not known
  bool no_mtp = false;
  bool no_dropout = false;
  bool text_only = false;        // without the tower that reads images
  std::optional<double> images;  // of a sequence
  bool operator==(const ModelReading&) const = default;
};
/// --assume --no-mtp --no-dropout --text-only --images
void add_model_reading(Command& command, ModelReading& reading);

/// A text that was read, under the name that messages give it.
struct NamedText {
  std::string name;
  std::string text;
};
/// A file's text; or the text itself where a JSON object stands in place of a file's name.
/// @param what  the name of such an object: "model". @throws as read_file
NamedText read_input(const std::string& file_or_json, const std::string& what);
/// NamedText::name, without reading.
std::string input_name(const std::string& file_or_json, const std::string& what);

/// A preset's name, a model spec or a Hugging Face config.json (or the folder that holds one), or
/// the JSON of such a file.
/// @throws ConfigError naming the nearest preset or file
models::ImportedModel load_model(const std::string& name_or_file, const ModelReading& reading = {});

/// Does load_cluster take it for a name, a file or its JSON? Anything else is a word to search by.
bool names_cluster(const std::string& text);
/// A name of a preset (catalog.hpp), a cluster file, or its JSON. @throws ConfigError naming the
/// nearest preset or file
sim::Cluster load_cluster(const std::string& name_or_file);

constexpr const char* kAdjustedHelp =
    "correct predictions by measured runs of this model and software on this cluster: a file of "
    "`meshplan adjust`";
/// An adjustment's file, or its JSON; null where there is none.
std::shared_ptr<const sim::Adjustment> load_adjustment(
    const std::optional<std::string>& file_or_json);
/// @param plan  on the adjustment's cluster and software, or one that is searched
/// @throws ConfigError for another cluster, software, model or precision, and for our own software
void require_adjustable(const sim::Adjustment& adjustment, const program::Plan& plan,
                        const sim::Cluster& cluster, const std::string& file);

/// The cluster that a plan was made for, out of the plan's file.
/// @throws ConfigError if the plan holds none
sim::Cluster cluster_of(const program::Plan& plan, const std::string& file);

/// --freeze: "embedding,layers.0-3". @throws ConfigError for an empty pattern
std::vector<std::string> frozen_patterns(const std::string& option);
constexpr const char* kFreezeHelp =
    "parameters that are not trained, for example embedding,layers.0-3 or '*,!*norm*' "
    "(docs/fine_tuning/frozen_parameters.md)";

/// Low-rank adapters: --lora --lora-modules --lora-alpha.
struct AdapterOptions {
  std::optional<int> rank;
  std::optional<std::string> modules;  // default: all linears, as their weights are
  std::optional<double> alpha;
  bool operator==(const AdapterOptions&) const = default;
};
void add_adapter_options(Command& command, AdapterOptions& options);

/// The model with adapters. @throws ConfigError naming the option, and as models::validate()
/// @returns whether there are any
bool add_adapters(models::ModelSpec& model, const AdapterOptions& options);

/// A plan with adapters, which alone are trained; as it is where none are asked for.
/// @throws ConfigError if the plan cannot have them
void add_adapters(program::Plan& plan, const AdapterOptions& options, const std::string& file);

/// A plan with other frozen parameters than its file names, if any are given.
/// @throws ConfigError if the plan cannot have them
void freeze(program::Plan& plan, const std::optional<std::string>& option, const std::string& file);

}  // namespace meshplan::cli
