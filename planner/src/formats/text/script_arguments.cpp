#include "formats/text/script_arguments.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"

namespace meshplan::planner {
namespace {

std::string with_underscores(std::string_view name) {
  std::string copy(name);
  std::ranges::replace(copy, '-', '_');
  return copy;
}

}  // namespace

ScriptArguments::ScriptArguments(const ImportRequest& request) {
  const std::string named = request.main.substr(request.main.find_last_of('/') + 1);
  bool is_read = false;
  for (const auto& [name, text] : request.files) {
    if (!name.ends_with(".sh") || text.find(named) == std::string::npos) continue;
    if (is_read) {
      unknown_.push_back(fmt::format("{}: names {}, too", name, named));
      continue;
    }
    try {
      const shell::Script script = shell::read_script(request.files, name, request.environment);
      for (const shell::ScriptCommand& command : script.commands) add(command);
      is_read = true;
    } catch (const ConfigError& error) {
      unknown_.emplace_back(error.what());
    }
  }
  add_given(request);
}

void ScriptArguments::add_given(const ImportRequest& request) {
  if (!request.arguments) return;
  shell::ScriptCommand given{.words = {}, .file = "--args", .line = 1};
  for (std::string& word : shell::shell_words(*request.arguments))
    given.words.push_back({std::move(word), {}});
  add(given);
}

void ScriptArguments::add(std::string_view name, std::string value, std::string place) {
  arguments_.push_back(
      {.name = with_underscores(name), .value = std::move(value), .place = std::move(place)});
}

void ScriptArguments::add(const shell::ScriptCommand& command) {
  const std::string place = fmt::format("{}:{}", command.file, command.line);
  const std::vector<shell::Value>& words = command.words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    if (!word.starts_with("--") || word.size() < 3) continue;
    const std::size_t equals = word.find('=');
    Argument argument{.name = with_underscores(std::string_view(word).substr(2, equals - 2)),
                      .place = place};
    const shell::Value* value = nullptr;
    if (equals != std::string::npos) {
      argument.value = word.substr(equals + 1);
      value = &words[i];
    } else if (i + 1 < words.size() && !words[i + 1].text.starts_with("--")) {
      argument.value = words[i + 1].text;
      value = &words[i + 1];
    }
    if (value != nullptr && !value->known()) {
      unknown_.push_back(
          fmt::format("{}: --{}: {}", place, argument.name, value->unknown.front().why));
      argument.value.reset();
    }
    arguments_.push_back(std::move(argument));
  }
}

const ScriptArguments::Argument* ScriptArguments::find(std::string_view name) const {
  const auto found = std::ranges::find(arguments_.rbegin(), arguments_.rend(),
                                       with_underscores(name), &Argument::name);
  return found == arguments_.rend() ? nullptr : &*found;
}

bool ScriptArguments::has(std::string_view name) const {
  return find(name) != nullptr;
}

std::optional<std::string> ScriptArguments::text(std::string_view name) const {
  const Argument* found = find(name);
  return found == nullptr ? std::nullopt : found->value;
}

std::optional<bool> ScriptArguments::flag(std::string_view name) const {
  const Argument* found = find(name);
  if (found == nullptr) return std::nullopt;
  if (!found->value) return true;
  std::string word = *found->value;
  std::ranges::transform(word, word.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (const std::string_view yes : {"true", "yes", "t", "y", "1"})
    if (word == yes) return true;
  for (const std::string_view no : {"false", "no", "f", "n", "0"})
    if (word == no) return false;
  throw ConfigError(fmt::format("{}: --{} {}: expected true or false", found->place, name,
                                short_line(*found->value)));
}

std::optional<double> ScriptArguments::number(std::string_view name) const {
  const Argument* found = find(name);
  if (found == nullptr || !found->value) return std::nullopt;
  const auto value = parse_number(*found->value, 0, limits::kRate);
  if (!value)
    throw ConfigError(fmt::format("{}: --{} {}: expected a number from 0 to {:g}", found->place,
                                  name, short_line(*found->value), limits::kRate));
  return value;
}

std::optional<std::int64_t> ScriptArguments::integer(std::string_view name, std::int64_t low,
                                                     std::int64_t high) const {
  const Argument* found = find(name);
  if (found == nullptr || !found->value) return std::nullopt;
  const auto value =
      parse_number(*found->value, static_cast<double>(low), static_cast<double>(high));
  if (!value || *value != static_cast<double>(static_cast<std::int64_t>(*value)))
    throw ConfigError(fmt::format("{}: --{} {}: expected an integer from {} to {}", found->place,
                                  name, short_line(*found->value), low, high));
  return static_cast<std::int64_t>(*value);
}

}  // namespace meshplan::planner
