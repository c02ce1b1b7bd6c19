#include "program/plan_file/stack_settings.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/json_paths.hpp"
#include "program/plan_file/stack_fields.hpp"

namespace meshplan::program {
namespace {

/// Collects the names of what is declared.
struct Names {
  std::vector<std::string> names;
  template <class T>
  void stated(std::string_view key, std::optional<T>& /*value*/, std::string_view /*meaning*/,
              Bounds /*bounds*/ = {}) {
    names.emplace_back(key);
  }
};

}  // namespace

const std::vector<std::string>& stack_setting_names() {
  static const std::vector<std::string> kNames = [] {
    Names names;
    StackSettings settings;
    fields(names, settings);
    return names.names;
  }();
  return kNames;
}

void set_stack(Stack& stack, std::string_view assignment, std::string_view option) {
  const std::string given = fmt::format("{} {}", option, assignment);
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0)
    throw ConfigError(
        fmt::format("{}: expected NAME=VALUE, for example {} overlap_ep=true", given, option));
  const std::string name(assignment.substr(0, equals));
  const std::vector<std::string>& names = stack_setting_names();
  if (name != "software" && std::ranges::find(names, name) == names.end())
    throw ConfigError(fmt::format("{}: {}", given, unknown_name_message("setting", name, names)));
  Json json = write_json(stack);
  const std::string word(assignment.substr(equals + 1));
  if (word == "null")
    json.erase(name);
  else
    json[name] = json_of_word(word, Json());
  JsonReader reader(json, given, "");
  Stack changed;
  fields(reader, changed);
  reader.finish();
  stack = std::move(changed);
}

std::vector<std::string> stated_settings(const StackSettings& settings) {
  std::vector<std::string> stated;
  const Json json = write_json(settings);
  for (const auto& [name, value] : json.items())
    stated.push_back(
        fmt::format("{}={}", name, value.is_string() ? value.get<std::string>() : value.dump()));
  return stated;
}

StackSettings merged(const StackSettings& first, const StackSettings& second) {
  Json both = write_json(second);
  const Json stated = write_json(first);
  for (const auto& [name, value] : stated.items()) both[name] = value;
  JsonReader reader(both, "merged settings", "");
  StackSettings settings;
  fields(reader, settings);
  reader.finish();
  return settings;
}

bool contradict(const StackSettings& a, const StackSettings& b) {
  const Json of_a = write_json(a), of_b = write_json(b);
  const auto settings = of_a.items();
  return std::any_of(settings.begin(), settings.end(), [&](const auto& setting) {
    return of_b.contains(setting.key()) && of_b.at(setting.key()) != setting.value();
  });
}

}  // namespace meshplan::program
