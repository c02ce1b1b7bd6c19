#include "formats/megatron_launch/test_case.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/error.hpp"
#include "core/line.hpp"
#include "core/utf8.hpp"
#include "core/words.hpp"
#include "formats/text/documents.hpp"
#include "shell/expand.hpp"

namespace meshplan::planner::megatron {
namespace {

/// "t5" of ".../t5/CASE/model_config.yaml"
std::string model_of(const std::string& path) {
  std::vector<std::string> folders;
  for (std::size_t at = 0; at < path.size();) {
    const auto slash = std::min(path.find('/', at), path.size());
    folders.push_back(path.substr(at, slash - at));
    at = slash + 1;
  }
  return folders.size() < 3 ? "" : folders[folders.size() - 3];
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? "" : value.dump();
}

/// Operands of a flag; none for a switch.
std::vector<shell::Value> operands_of(const Json& value, shell::Expander& expander) {
  std::vector<shell::Value> values;
  if (value.is_boolean() && value.get<bool>()) return values;
  std::string text = text_of(value);
  const bool is_list = text.size() > 1 && text.starts_with('[') && text.ends_with(']');
  if (is_list) {
    for (const std::string& word : words_of(text.substr(1, text.size() - 2)))
      values.push_back(expander.here_document(word));
  } else if (!text.empty()) {
    values.push_back(expander.here_document(text));
  }
  return values;
}

/// The last of several lines "  --flag: value" of one flag counts, as in the tests' own reader.
std::string without_repeated_flags(const std::string& text, std::vector<std::string>& assumptions,
                                   const std::string& file) {
  std::map<std::string, std::size_t> last;
  const auto flag_of = [](const std::string& line) -> std::string {
    const bool is_flag = line.starts_with("  --") && line.find(':') != std::string::npos;
    return is_flag ? line.substr(0, line.find(':')) : std::string();
  };
  // A flag of another map is another flag.
  std::vector<std::string> lines;
  std::vector<std::string> keys;
  std::string map;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
    const std::string& line = lines.back();
    if (!line.empty() && line.front() != ' ' && line.front() != '#') map = line;
    const std::string flag = flag_of(line);
    keys.emplace_back();
    if (flag.empty()) continue;
    keys.back().append(map).append("\n").append(flag);
    last[keys.back()] = keys.size() - 1;
  }
  std::string kept;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool repeated = !keys[i].empty() && last.at(keys[i]) != i;
    if (repeated)
      assumptions.push_back(fmt::format("{}:{}: {} is given again: the last one counts", file,
                                        i + 1, short_line(lines[i])));
    kept += repeated ? "\n" : lines[i] + "\n";
  }
  return kept;
}

}  // namespace

bool is_test_case(std::string_view name, std::string_view text) {
  const bool is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
  return is_yaml &&
         (text.starts_with("MODEL_ARGS:") || text.find("\nMODEL_ARGS:") != std::string_view::npos);
}

Launch launch_of_test_case(const ImportRequest& request) {
  const std::string& file = request.main;
  Launch launch;
  const Json json =
      parse_yaml(without_repeated_flags(request.files.at(file), launch.assumptions, file), file);
  const Json* flags =
      json.is_object() && json.contains("MODEL_ARGS") ? &json["MODEL_ARGS"] : nullptr;
  if (flags == nullptr || !flags->is_object())
    throw ConfigError(
        fmt::format("{}: MODEL_ARGS: expected a map of flags, such as --num-layers: 8", file));
  if (json.value("MODE", Json()) == "inference")
    throw ConfigError(
        fmt::format("{}: MODE inference: starts no training, but generates text", file));
  shell::Variables variables;
  for (const auto& [name, value] : request.environment)
    variables[name] = {false, {shell::Value{value, {}}}};
  shell::Budget budget;
  shell::Expander expander(variables, budget);
  launch.program = model_of(file);
  for (const auto& [flag, value] : flags->items()) {
    if (!flag.starts_with("--") || value.is_object() || value.is_array())
      throw ConfigError(
          fmt::format("{}: MODEL_ARGS.{}: expected a flag with one value, such as "
                      "--num-layers: 8",
                      file, short_line(flag)));
    if (value.is_boolean() && !value.get<bool>()) continue;
    try {
      launch.arguments.push_back({flag, operands_of(value, expander), file});
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: MODEL_ARGS.{}: {}", file, short_line(flag), error.what()));
    }
  }
  return launch;
}

}  // namespace meshplan::planner::megatron
