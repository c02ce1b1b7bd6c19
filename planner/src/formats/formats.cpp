#include "planner/formats/formats.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::planner {

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {};
  return all;
}

const Format& format_of(std::string_view name) {
  std::vector<std::string> names;
  for (const Format& format : formats()) {
    if (format.name == name) return format;
    names.emplace_back(format.name);
  }
  throw ConfigError(
      fmt::format("unknown format '{}'; nearest: {}", name, nearest_choice(name, names)));
}

const Format* recognized_format(std::string_view name, std::string_view text) {
  for (const Format& format : formats())
    if (format.recognizes != nullptr && format.recognizes(name, text)) return &format;
  return nullptr;
}

}  // namespace meshplan::planner
