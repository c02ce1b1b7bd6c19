#include "options/inputs.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>
#include <utility>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "models/adapters.hpp"
#include "process/files.hpp"
#include "program/checks/check.hpp"
#include "sim/clusters/catalog.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::cli {
namespace {

// Names look like names, files have a folder, an extension or exist.
bool is_file_name(const std::string& given) {
  return given.find('/') != std::string::npos || given.ends_with(".json") || path_exists(given);
}

bool is_json(const std::string& given) {
  return given.substr(0, given.find_first_not_of(" \t\r\n") + 1).ends_with('{');
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

[[noreturn]] void fail_unknown(const std::string& message) {
  throw ConfigError(message + ", and there is no such file");
}

models::ImportedModel read_model(const std::string& name_or_file, const std::string& assume) {
  const std::vector<std::string> presets = models::preset_names();
  if (contains(presets, name_or_file)) return {.spec = models::load_preset(name_or_file)};
  if (is_json(name_or_file)) return models::load_model(name_or_file, "model", assume);
  if (!is_file_name(name_or_file))
    fail_unknown(unknown_name_message("model", name_or_file, presets));
  const std::string file = !folder_exists(name_or_file)  ? name_or_file
                           : name_or_file.ends_with('/') ? name_or_file + "config.json"
                                                         : name_or_file + "/config.json";
  return models::load_model(read_file(file), file, assume);
}

}  // namespace

NamedText read_input(const std::string& file_or_json, const std::string& what) {
  return {input_name(file_or_json, what),
          is_json(file_or_json) ? file_or_json : read_file(file_or_json)};
}

std::string input_name(const std::string& file_or_json, const std::string& what) {
  return is_json(file_or_json) ? what : file_or_json;
}

void add_model_reading(Command& command, ModelReading& reading) {
  command
      .option("--assume", reading.assume,
              "read a config.json of another model_type as if it were of this one, e.g. llama")
      .flag("--no-mtp", reading.no_mtp, "leave out multi-token prediction modules")
      .flag("--no-dropout", reading.no_dropout, "leave out dropout")
      .flag("--text-only", reading.text_only, "leave out the tower that reads images")
      .option("--images", reading.images, "images of a sequence, on average; default 1");
}

namespace {

void read_tower(const ModelReading& reading, models::ImportedModel& model) {
  const int layers = model.spec.vision->num_layers;
  if (reading.text_only) {
    model.spec.vision.reset();
    model.assumptions.push_back(
        fmt::format("vision = none (--text-only; the model has a tower of {} layers)", layers));
    return;
  }
  const double images = reading.images.value_or(model.spec.vision->images_per_sequence);
  if (!(images >= 0 && images <= 1e6))
    throw ConfigError(fmt::format("--images: {}: expected a number from 0 to 1e6", images));
  model.spec.vision->images_per_sequence = images;
  if (!reading.images)
    model.assumptions.push_back(
        fmt::format("{:g} image of {} patches a sequence (--images, --text-only)", images,
                    model.spec.vision->image_patches));
}

}  // namespace

models::ImportedModel load_model(const std::string& name_or_file, const ModelReading& reading) {
  models::ImportedModel model = read_model(name_or_file, reading.assume.value_or(""));
  if (reading.no_mtp && model.spec.mtp_layers > 0) {
    model.assumptions.push_back(fmt::format("mtp_layers = 0 (--no-mtp; the model has {})",
                                            std::exchange(model.spec.mtp_layers, 0)));
  }
  if (reading.no_dropout && model.spec.dropout > 0) {
    model.assumptions.push_back(fmt::format("dropout = 0 (--no-dropout; the model has {})",
                                            std::exchange(model.spec.dropout, 0.0)));
  }
  if (model.spec.vision) read_tower(reading, model);
  return model;
}

namespace {

/// "NAME", or "NAME:NODES" for one part of a cluster with several node types.
sim::Cluster load_part(const std::string& part) {
  const std::size_t colon = part.rfind(':');
  sim::Cluster cluster = load_cluster(part.substr(0, colon));
  if (colon == std::string::npos) return cluster;
  const std::string number = part.substr(colon + 1);
  const int most = static_cast<int>(limits::kRanks) / cluster.devices_per_node;
  const auto nodes = parse_integer(number, 1, most);
  if (!nodes)
    throw ConfigError(fmt::format(
        "--cluster: '{}': expected a number of nodes behind the colon, as in dgx-h100:4, from 1 to "
        "{}, got '{}'",
        part, most, number));
  return sim::with_ranks(cluster, *nodes * cluster.devices_per_node);
}

bool names_several(const std::string& text) {
  return text.find('+') != std::string::npos || text.find(':') != std::string::npos;
}

}  // namespace

bool names_cluster(const std::string& text) {
  return sim::preset_called(text) || is_json(text) || names_several(text) || is_file_name(text);
}

sim::Cluster load_cluster(const std::string& name_or_file) {
  // Reading what all presets are called takes longer than reading one of them.
  if (contains(sim::cluster_names(), name_or_file)) return sim::load_cluster_preset(name_or_file);
  if (is_json(name_or_file)) return sim::parse_cluster(name_or_file, "cluster");
  if (names_several(name_or_file) && !path_exists(name_or_file)) {
    std::vector<sim::Cluster> parts;
    std::istringstream text(name_or_file + '+');  // so that an empty last part is one
    for (std::string part; std::getline(text, part, '+');) parts.push_back(load_part(part));
    return parts.size() == 1 ? parts.front() : sim::joined(parts);
  }
  if (const auto called = sim::preset_called(name_or_file))
    return sim::load_cluster_preset(*called);
  if (!is_file_name(name_or_file)) fail_unknown(sim::unknown_cluster_message(name_or_file));
  return sim::parse_cluster(read_file(name_or_file), name_or_file);
}

std::shared_ptr<const sim::Adjustment> load_adjustment(
    const std::optional<std::string>& file_or_json) {
  if (!file_or_json) return nullptr;
  const auto [file, text] = read_input(*file_or_json, "adjustment");
  return std::make_shared<const sim::Adjustment>(sim::parse_adjustment(text, file));
}

void require_adjustable(const sim::Adjustment& adjustment, const program::Plan& plan,
                        const sim::Cluster& cluster, const std::string& file) {
  if (plan.stack.is_own())
    throw ConfigError(fmt::format(
        "{}: plans of software '{}' are priced operation by operation and cannot be adjusted by "
        "measured steps; measure their operations (meshplan calibrate), or name the software that "
        "ran: --software {}",
        file, plan.stack.software, adjustment.of().software));
  sim::require_anchored(adjustment.of(), sim::anchored_to(sim::run_of(plan, cluster.name)), file);
}

sim::Cluster cluster_of(const program::Plan& plan, const std::string& file) {
  if (plan.cluster_json.empty())
    throw ConfigError(
        fmt::format("{}: cluster: the plan holds no cluster; name one with --cluster", file));
  return sim::parse_cluster(plan.cluster_json, file + ": cluster");
}

std::vector<std::string> frozen_patterns(const std::string& option) {
  std::vector<std::string> patterns;
  std::istringstream parts(option);
  for (std::string part; std::getline(parts, part, ',');) patterns.push_back(part);
  if (patterns.empty() || std::ranges::find(patterns, std::string()) != patterns.end())
    throw ConfigError(
        fmt::format("--freeze '{}': names of parameters with commas between them, for example "
                    "embedding,layers.0-3",
                    option));
  return patterns;
}

void add_adapter_options(Command& command, AdapterOptions& options) {
  command
      .option("--lora", options.rank,
              "train adapters of this rank beside the linears, and nothing else")
      .at_least(1)
      .beside_plan()
      .option("--lora-modules", options.modules,
              "linears that have them, for example qkv_proj,o_proj; q_proj,v_proj: parts of a "
              "fused one, each with its own A (default: all linears)")
      .beside_plan()
      .option("--lora-alpha", options.alpha, "their product is scaled by alpha / rank (default: 1)")
      .at_least(0)
      .beside_plan();
}

bool add_adapters(models::ModelSpec& model, const AdapterOptions& options) {
  if (!options.rank) {
    if (options.modules || options.alpha)
      throw ConfigError(
          "--lora-modules and --lora-alpha are of adapters; add their rank: --lora 16");
    return false;
  }
  models::AdapterSpec adapters{.rank = *options.rank, .alpha = options.alpha.value_or(0)};
  if (options.modules) {
    std::istringstream parts(*options.modules);
    for (std::string part; std::getline(parts, part, ',');) adapters.modules.push_back(part);
  } else {
    adapters.modules = models::linear_modules(model);
  }
  model.adapters = std::move(adapters);
  models::validate(model, "--lora");
  return true;
}

void add_adapters(program::Plan& plan, const AdapterOptions& options, const std::string& file) {
  if (!add_adapters(plan.model, options)) return;
  plan.frozen = models::all_but_adapters();
  plan.prediction.reset();
  for (const program::Violation& violation : program::check(plan))
    throw ConfigError(fmt::format("{}: --lora {}: {}", file, *options.rank, violation.message));
}

void freeze(program::Plan& plan, const std::optional<std::string>& option,
            const std::string& file) {
  if (!option) return;
  plan.frozen = frozen_patterns(*option);
  plan.prediction.reset();  // it predicts what the file trains
  for (const program::Violation& violation : program::check(plan))
    throw ConfigError(fmt::format("{}: --freeze {}: {}", file, *option, violation.message));
}

}  // namespace meshplan::cli
