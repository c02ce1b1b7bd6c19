#include "options/foreign.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <utility>

#include "core/error.hpp"
#include "core/paths.hpp"
#include "core/utf8.hpp"
#include "planner/explain/priced_plan.hpp"
#include "process/files.hpp"
#include "program/plan_file/plan_file.hpp"

namespace meshplan::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostSiblings = 64;
constexpr std::uintmax_t kMostSiblingBytes = 1 << 18;

bool looks_like_plan(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' &&
         text.find("\"parallel\"") != std::string::npos &&
         text.find("\"workload\"") != std::string::npos;
}

/// Small files beside one that it may name: scripts that it sources, or that start it, schedules,
/// and other configurations.
std::map<std::string, std::string> siblings_of(const std::string& file) {
  std::map<std::string, std::string> siblings;
  const fs::path folder = fs::path(file).has_parent_path() ? fs::path(file).parent_path() : ".";
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string extension = entry.path().extension().string();
    const bool may_be_named = extension == ".sh" || extension == ".env" || extension == ".bash" ||
                              extension == ".csv" || extension == ".json" || extension == ".md";
    const bool one_line = entry.path().native().find('\n') == std::string::npos;
    if (may_be_named && one_line && entry.is_regular_file(ignored) &&
        entry.file_size(ignored) <= kMostSiblingBytes)
      paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  if (paths.size() > kMostSiblings) paths.resize(kMostSiblings);
  for (const fs::path& path : paths) siblings.emplace(path.string(), read_file(path.string()));
  return siblings;
}

/// A file and, of "plans.py:llama3_8b", what is meant in it.
struct PlanFile {
  std::string name;  // as it was given
  std::string file;
  std::string text;
};

PlanFile read_plan_file(const std::string& file_or_json) {
  const std::size_t colon = file_or_json.rfind(".py:");
  const bool names_function = colon != std::string::npos && !path_exists(file_or_json) &&
                              path_exists(file_or_json.substr(0, colon + 3));
  auto [file, text] =
      read_input(names_function ? file_or_json.substr(0, colon + 3) : file_or_json, "plan");
  return {.name = names_function ? file_or_json : file, .file = file, .text = std::move(text)};
}

/// A script that another one sources, a module that one imports, or a configuration that one names;
/// small files alone.
std::optional<std::string> sourced_file(const std::string& path) {
  std::error_code ignored;
  const std::string extension = fs::path(path).extension().string();
  const bool may_be_named = extension == ".sh" || extension == ".bash" || extension == ".env" ||
                            extension == ".py" || extension == ".json" || extension == ".yaml" ||
                            extension == ".yml";
  if (!may_be_named || !fs::is_regular_file(path, ignored) ||
      fs::file_size(path, ignored) > kMostSiblingBytes)
    return std::nullopt;
  return read_file(path);
}

std::map<std::string, std::string> variables_of(const std::vector<std::string>& settings) {
  std::map<std::string, std::string> variables;
  for (const std::string& setting : settings) {
    const auto equals = setting.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw ConfigError(
          fmt::format("--env {}: expected NAME=VALUE, for example --env NNODES=16", setting));
    if (const auto bad = first_non_text(setting))
      throw ConfigError(fmt::format("--env {}: {}", setting, non_text_message(setting, *bad)));
    variables[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return variables;
}

std::vector<std::string> readable_formats() {
  std::vector<std::string> names;
  for (const planner::Format& format : planner::formats())
    if (format.read != nullptr) names.emplace_back(format.name);
  return names;
}

const planner::Format& format_for(const std::string& file, const std::string& text,
                                  const ForeignOptions& options) {
  const std::vector<std::string> readable = readable_formats();
  const planner::Format* format =
      options.from ? &planner::format_of(*options.from) : planner::recognized_format(file, text);
  if (format == nullptr)
    throw ConfigError(fmt::format(
        "{}: is neither a plan nor a configuration that is recognized; say what it is with --from: "
        "{}",
        file, fmt::join(readable, ", ")));
  if (format->read == nullptr)
    throw ConfigError(fmt::format("--from {}: is written only; read are {}", format->name,
                                  fmt::join(readable, ", ")));
  return *format;
}

}  // namespace

void add_foreign_options(Command& command, ForeignOptions& options) {
  std::vector<std::string> names = readable_formats();
  command
      .option("--from", options.from,
              fmt::format("what the file is, if it is no plan: {}; default: recognized",
                          fmt::join(names, ", ")))
      .suggests(std::move(names))
      .option("--env", options.environment,
              "NAME=VALUE: a variable that a launch script takes from its surroundings, 1=VALUE "
              "its first argument; may be repeated")
      .option(
          "--args", options.arguments,
          "arguments of a launch script, as on its command line: \"dsw 7B 1 8\"; of a "
          "torchtitan configuration \"--training.steps 10\", of a trainer's \"--bf16 true\", of a "
          "recipe of Megatron-Bridge \"model.seq_length=4096\"");
}

void add_foreign_context(Command& command, ForeignContext& context) {
  command
      .option("-m,--model", context.model, "the model, where a launch script does not describe it")
      .suggests(models::preset_names())
      .takes_file()
      .takes_json()
      .option("-n,--gpus", context.ranks, "GPUs, where a launch script does not say");
  add_model_reading(command, context.reading);
}

bool is_foreign(const std::string& file_or_json, const ForeignOptions& options) {
  const PlanFile input = read_plan_file(file_or_json);
  if (options.from) return true;
  return !looks_like_plan(input.text) &&
         planner::recognized_format(input.file, input.text) != nullptr;
}

PlanInput read_plan(const std::string& file_or_json, const ForeignOptions& options,
                    const ForeignContext& context) {
  auto [name, file, text] = read_plan_file(file_or_json);
  const bool recognized =
      !looks_like_plan(text) && planner::recognized_format(file, text) != nullptr;
  // What no format recognizes is judged as a plan if it is JSON: the refusal says what a plan
  // holds.
  const bool is_json = text.starts_with('{') || file.ends_with(".json");
  if (!options.from && !recognized && (is_json || looks_like_plan(text)))
    return {.text = std::move(text)};
  const planner::Format& format = format_for(file, text, options);
  planner::ImportRequest request{.main = name};
  if (is_file(file)) {
    request.files = siblings_of(file);
    request.open = sourced_file;
  }
  request.files[file] = std::move(text);
  request.ranks = context.ranks;
  request.environment = variables_of(options.environment);
  request.arguments = options.arguments;
  if (options.arguments)
    if (const auto bad = first_non_text(*options.arguments))
      throw ConfigError(fmt::format("--args: {}", non_text_message(*options.arguments, *bad)));
  PlanInput input;
  if (context.model) {
    models::ImportedModel model = load_model(*context.model, context.reading);
    input.assumptions = std::move(model.assumptions);
    request.model = std::move(model.spec);
  }
  planner::ImportedPlan imported = format.read(request);
  if (int& modules = imported.plan.model.mtp_layers; context.reading.no_mtp && modules > 0)
    input.assumptions.push_back(
        fmt::format("mtp_layers = 0 (--no-mtp; the model has {})", std::exchange(modules, 0)));
  input.text = program::to_json(imported.plan);
  input.format = format.name;
  input.facts = std::move(imported.facts);
  std::ranges::move(imported.assumptions, std::back_inserter(input.assumptions));
  input.ignored = std::move(imported.ignored);
  return input;
}

planner::Facts facts_told(const PlanInput& input, const program::Plan& plan) {
  if (!input.format.empty()) return input.facts;
  const std::optional<std::string> target = planner::target_of(plan.stack.software);
  if (!target || *target == planner::kOwnTarget) return {};
  return planner::facts_of_export(planner::format_of(*target), {.plan = plan});
}

std::vector<program::Violation> stack_refusals(const PlanInput& input, const program::Plan& plan) {
  return plan.stack.is_own() ? std::vector<program::Violation>{}
                             : planner::refusals_of_stack(plan, facts_told(input, plan));
}

std::vector<std::string> notes_of(const PlanInput& input) {
  std::vector<std::string> notes;
  for (const std::string& assumption : input.assumptions) notes.push_back("assumed  " + assumption);
  if (!input.ignored.empty())
    notes.push_back(fmt::format("ignored  {}", fmt::join(input.ignored, ", ")));
  return notes;
}

}  // namespace meshplan::cli
