#include "formats/text/settings.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/line.hpp"
#include "core/utf8.hpp"
#include "python/tree.hpp"

namespace meshplan::planner {
namespace {

constexpr double kLargestWhole = 9007199254740992.0;  // 2^53: beyond, doubles skip integers

std::string lower(std::string_view text) {
  std::string copy(text);
  for (char& c : copy)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return copy;
}

std::pair<std::string, std::string> parent_and_key(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

/// Is one of the names the other with a letter or two mistaken?
bool is_slip(std::string_view a, std::string_view b) {
  const auto prefix = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  std::size_t suffix = 0;
  while (suffix + prefix < std::min(a.size(), b.size()) &&
         a[a.size() - 1 - suffix] == b[b.size() - 1 - suffix])
    ++suffix;
  return std::max(a.size(), b.size()) - prefix - suffix <= 2 && prefix + suffix >= 3;
}

std::string whole(double value) {
  return fmt::format("{:.0f}", value);
}

}  // namespace

void check_configuration_text(std::string_view text, const std::string& file) {
  if (text.size() > kLargestConfiguration)
    throw ConfigError(fmt::format("{}: {} bytes; a configuration of at most {} is read", file,
                                  text.size(), kLargestConfiguration));
  const std::optional<std::size_t> bad = first_non_text(text);
  if (!bad) return;
  const std::string_view before = text.substr(0, *bad);
  throw ConfigError(fmt::format("{}:{}:{}: {}; save the file as UTF-8", file,
                                1 + std::ranges::count(before, '\n'),
                                before.size() - (before.rfind('\n') + 1) + 1,  // npos + 1 = 0
                                non_text_message(text, *bad)));
}

Settings::Settings(Json root, std::string file, std::string open_word)
    : root_(std::move(root)), file_(std::move(file)), open_word_(std::move(open_word)) {
  if (!root_.is_object())
    throw ConfigError(
        fmt::format("{}: expected keys with values, got {}", file_, root_.type_name()));
}

const Json* Settings::find(std::string_view path) const {
  const Json* place = &root_;
  while (true) {
    const std::size_t dot = path.find('.');
    if (!place->is_object()) return nullptr;
    const auto found = place->find(std::string(path.substr(0, dot)));
    if (found == place->end()) return nullptr;
    place = &*found;
    if (dot == std::string_view::npos) return place;
    path.remove_prefix(dot + 1);
  }
}

bool Settings::has(std::string_view path) const {
  return find(path) != nullptr;
}

std::vector<std::string> Settings::keys(std::string_view path) const {
  std::vector<std::string> names;
  const Json* place = path.empty() ? &root_ : find(path);
  if (place != nullptr && place->is_object())
    for (const auto& [key, value] : place->items()) names.push_back(key);
  return names;
}

const Json* Settings::value(std::string_view path) {
  asked_.emplace(path);
  const Json* found = find(path);
  if (found == nullptr || found->is_null()) return nullptr;
  if (!open_word_.empty() && found->is_string() &&
      found->get_ref<const std::string&>() == open_word_) {
    left_open_.emplace_back(path);
    return nullptr;
  }
  return found;
}

void Settings::fail(std::string_view path, std::string_view expected) const {
  const Json* found = find(path);
  if (found != nullptr && python::is_unknown(*found))
    throw ConfigError(fmt::format(
        "{}: {}: '{}' is not understood ({}); expected {}", file_, path,
        short_line(found->at(python::kSource).get<std::string>()),
        found->value(python::kPlace, "what only a run could tell is not read"), expected));
  throw ConfigError(fmt::format("{}: {}: expected {}, got {}", file_, path, expected,
                                found == nullptr ? "nothing" : quoted(*found)));
}

std::optional<bool> Settings::flag(std::string_view path) {
  const Json* found = value(path);
  if (found == nullptr) return std::nullopt;
  if (!found->is_boolean()) fail(path, "true or false");
  return found->get<bool>();
}

std::optional<double> Settings::any_number(std::string_view path, Bounds bounds,
                                           std::string_view kind) {
  const Json* found = value(path);
  if (found == nullptr) return std::nullopt;
  const auto range = [&](const std::string& rule, double nearest) {
    fail(path, fmt::format("{} {}; nearest: {}", kind, rule,
                           kind == "an integer" ? whole(nearest) : fmt::format("{}", nearest)));
  };
  if (!found->is_number()) fail(path, kind);
  const auto number = found->get<double>();
  if (!std::isfinite(number)) fail(path, fmt::format("{} that is finite", kind));
  if (bounds.low && number < *bounds.low)
    range(fmt::format("of at least {}", *bounds.low), *bounds.low);
  if (bounds.high && number > *bounds.high)
    range(fmt::format("of at most {}", whole(*bounds.high)), *bounds.high);
  return number;
}

std::optional<std::int64_t> Settings::integer(std::string_view path, Bounds bounds) {
  const auto number = any_number(path, bounds, "an integer");
  if (!number) return std::nullopt;
  if (*number != std::floor(*number) || std::abs(*number) > kLargestWhole) fail(path, "an integer");
  return static_cast<std::int64_t>(*number);
}

std::optional<int> Settings::small(std::string_view path, Bounds bounds) {
  const auto wide = integer(path, bounds);
  if (!wide) return std::nullopt;
  if (*wide < INT32_MIN || *wide > INT32_MAX) fail(path, "a 32-bit integer");
  return static_cast<int>(*wide);
}

std::optional<double> Settings::number(std::string_view path, Bounds bounds) {
  return any_number(path, bounds, "a number");
}

std::optional<std::string> Settings::text(std::string_view path) {
  const Json* found = value(path);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) fail(path, "a text");
  auto text = found->get<std::string>();
  require_line(text, fmt::format("{}: {}", file_, path), limits::kLineBytes);
  return text;
}

std::optional<std::string> Settings::word(std::string_view path,
                                          std::span<const std::string_view> choices) {
  const Json* found = value(path);
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) {
    const std::string given = lower(found->get<std::string>());
    for (const std::string_view choice : choices)
      if (lower(choice) == given) return std::string(choice);
    throw ConfigError(fmt::format(
        "{}: {}: {}", file_, path,
        unknown_name_message("value", found->get<std::string>(),
                             std::vector<std::string>(choices.begin(), choices.end()))));
  }
  fail(path, fmt::format("one of {}", fmt::join(choices, ", ")));
}

std::string Settings::hint_for(const std::string& path) const {
  const auto [parent, key] = parent_and_key(path);
  for (const std::string& other : asked_) {
    const auto [other_parent, other_key] = parent_and_key(other);
    if (other_parent == parent && !has(other) && is_slip(key, other_key))
      return fmt::format(" (unknown; did you mean '{}'?)", other_key);
  }
  return "";
}

bool Settings::asks_below(const std::string& path) const {
  const auto next = asked_.lower_bound(path + ".");
  return next != asked_.end() && next->starts_with(path + ".");
}

void Settings::list_unread(const Json& value, const std::string& path,
                           std::vector<std::string>& lines) const {
  if (asked_.contains(path)) return;
  // Of a call that nobody looked into its name is enough.
  if (python::is_call(value) && !path.empty() && !asks_below(path)) {
    lines.push_back(
        fmt::format("{} = {}({})", path, python::call_name(value), value.size() == 1 ? "" : "..."));
    return;
  }
  if (python::is_unknown(value)) {
    lines.push_back(fmt::format("{} = {}", path, value.at(python::kSource).get<std::string>()));
    return;
  }
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, child] : value.items())
      if (key != python::kCall)
        list_unread(child, path.empty() ? key : fmt::format("{}.{}", path, key), lines);
    return;
  }
  if (!path.empty()) lines.push_back(fmt::format("{} = {}{}", path, quoted(value), hint_for(path)));
}

std::vector<std::string> Settings::unread() const {
  std::vector<std::string> lines;
  list_unread(root_, "", lines);
  return lines;
}

}  // namespace meshplan::planner
