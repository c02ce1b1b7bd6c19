#include "formats/megatron/reading.hpp"

#include <charconv>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"

namespace meshplan::planner::megatron {

std::string Argument::written() const {
  std::string text = flag;
  for (const shell::Value& value : values) text += " " + value.text;
  return text;
}

UnknownSetting::UnknownSetting(const Argument& argument, const shell::Value& value)
    : ConfigError(fmt::format("{}: {}: {}; give it with --env NAME=VALUE", argument.place,
                              short_line(argument.written()),
                              printable_line(value.unknown.front().why))),
      flag(argument.flag) {
  for (const shell::Unknown& each : value.unknown) shell::add_needs(needs, each.needs);
}

const Argument* Reading::find(std::string_view flag) const {
  asked_.emplace(flag);
  for (auto argument = arguments_.rbegin(); argument != arguments_.rend(); ++argument)
    if (argument->flag == flag) return &*argument;
  return nullptr;
}

void Reading::fail(const Argument& argument, std::string_view why) {
  throw ConfigError(fmt::format("{}: {}: {}", argument.place, short_line(argument.written()),
                                printable_line(why)));
}

std::vector<std::string> Reading::texts(const Argument& argument) const {
  std::vector<std::string> texts;
  for (const shell::Value& value : argument.values) {
    if (!value.known()) throw UnknownSetting(argument, value);
    texts.push_back(value.text);
  }
  return texts;
}

const std::string& Reading::text(const Argument& argument) const {
  if (argument.values.size() != 1) fail(argument, "expected one value");
  const shell::Value& value = argument.values.front();
  if (!value.known()) throw UnknownSetting(argument, value);
  return value.text;
}

bool Reading::note(const Argument& argument) const {
  if (argument.values.size() != 1 || argument.values.front().known()) return true;
  unknown_.emplace_back(argument, argument.values.front());
  return false;
}

std::int64_t Reading::integer(const Argument& argument, std::int64_t low, std::int64_t high) const {
  if (!note(argument)) return low;
  const std::string& given = text(argument);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
  const bool whole = error == std::errc() && end == given.data() + given.size();
  if (!whole || value < low || value > high)
    fail(argument, fmt::format("expected a whole number from {} to {}", low, high));
  return value;
}

double Reading::number(const Argument& argument, double low, double high) const {
  if (!note(argument)) return low;
  const auto value = parse_number(text(argument), low, high);
  if (!value) fail(argument, fmt::format("expected a number from {:g} to {:g}", low, high));
  return *value;
}

std::size_t Reading::choice(const Argument& argument, std::span<const std::string> choices) const {
  if (!note(argument)) return 0;
  const std::string& given = text(argument);
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (choices[i] == given) return i;
  fail(argument, fmt::format("is not read here; nearest: {}", nearest_choice(given, choices)));
}

}  // namespace meshplan::planner::megatron
