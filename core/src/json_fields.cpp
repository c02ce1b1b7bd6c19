#include "core/json_fields.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

#include "core/json_list.hpp"
#include "core/json_text.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/printable.hpp"

namespace meshplan {
namespace {

constexpr std::size_t kLongestQuotedValue = 80;

void require_key(const std::string& key, std::string_view place) {
  require_line(key, fmt::format("{}: a key", place), limits::kNameBytes);
}

std::size_t most_bytes(Bounds bounds) {
  return static_cast<std::size_t>(bounds.high.value_or(static_cast<double>(limits::kLineBytes)));
}

}  // namespace

void require_lines(const Json& value, const std::string& place) {
  if (value.is_string())
    require_line(value.get_ref<const std::string&>(), place, limits::kLineBytes);
  if (value.is_object())
    for (const auto& [key, child] : value.items()) {
      require_key(key, place);
      require_lines(child, fmt::format("{}.{}", place, key));
    }
  if (value.is_array())
    for (std::size_t i = 0; i < value.size(); ++i)
      require_lines(value[i], fmt::format("{}[{}]", place, i));
}

Bounds of_name() {
  return at_most(static_cast<double>(limits::kNameBytes));
}

std::string quoted(const Json& value) {
  std::string text = printable_line(json_text(value, /*indent=*/-1));
  if (text.size() <= kLongestQuotedValue) return text;
  std::size_t end = kLongestQuotedValue;
  while ((static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;  // a whole character
  return text.substr(0, end) + "...";
}

Json parse_json(std::string_view text, std::string_view file) {
  return read_json_list(one_block(text), file, {.most_tree_bytes = kMostWholeTreeBytes});
}

JsonReader::JsonReader(const Json& object, std::string file, std::string path,
                       std::vector<std::string>* assumed)
    : object_(object), file_(std::move(file)), path_(std::move(path)), assumed_(assumed) {}

const Json* JsonReader::find(std::string_view key) const {
  const auto found = object_.find(std::string(key));
  return found == object_.end() ? nullptr : &*found;
}

std::string JsonReader::child(std::string_view key) const {
  return below(path_, key);
}

std::string JsonReader::below(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

void JsonReader::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::ranges::find(known_, key) != known_.end()) continue;
    throw ConfigError(fmt::format("{}: {}: unknown key; did you mean '{}'? known here: {}", file_,
                                  short_line(child(key)), nearest_choice(key, known_),
                                  fmt::join(known_, ", ")));
  }
  if (!missing_.empty())
    throw ConfigError(fmt::format(
        "{}: {}: required key is missing{}", file_, child(missing_.front()),
        missing_.size() > 1 ? fmt::format(" (and {} more: {})", missing_.size() - 1,
                                          fmt::join(missing_.begin() + 1, missing_.end(), ", "))
                            : std::string()));
}

void JsonReader::fail(const std::string& path, const Json& value, std::string_view expected) const {
  throw ConfigError(
      fmt::format("{}: {}: expected {}, got {}", file_, path, expected, quoted(value)));
}

void JsonReader::fail_name(const std::string& path, const Json& value,
                           const std::vector<std::string>& names) const {
  if (!value.is_string()) fail(path, value, fmt::format("one of {}", fmt::join(names, ", ")));
  throw ConfigError(fmt::format("{}: {}: {}", file_, path,
                                unknown_name_message("value", value.get<std::string>(), names)));
}

void JsonReader::check_bounds(const std::string& path, const Json& value, Bounds bounds) const {
  const double number = value.get<double>();
  if (bounds.low && number < *bounds.low)
    fail(path, value, fmt::format("a number of at least {}", *bounds.low));
  if (bounds.high && number > *bounds.high)
    fail(path, value, fmt::format("a number of at most {}", *bounds.high));
}

void JsonReader::convert(const Json& value, const std::string& path, bool& out,
                         Bounds /*bounds*/) const {
  if (!value.is_boolean()) fail(path, value, "true or false");
  out = value.get<bool>();
}

void JsonReader::convert(const Json& value, const std::string& path, std::int64_t& out,
                         Bounds bounds) const {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() &&
                      value.get<std::uint64_t>() >
                          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!fits) fail(path, value, "an integer");
  check_bounds(path, value, bounds);
  out = value.get<std::int64_t>();
}

void JsonReader::convert(const Json& value, const std::string& path, std::uint64_t& out,
                         Bounds bounds) const {
  if (!value.is_number_unsigned()) fail(path, value, "an integer of at least 0");
  check_bounds(path, value, bounds);
  out = value.get<std::uint64_t>();
}

void JsonReader::convert(const Json& value, const std::string& path, int& out,
                         Bounds bounds) const {
  std::int64_t wide = 0;
  convert(value, path, wide, bounds);
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max())
    fail(path, value, "a 32-bit integer");
  out = static_cast<int>(wide);
}

void JsonReader::convert(const Json& value, const std::string& path, double& out,
                         Bounds bounds) const {
  if (!value.is_number()) fail(path, value, "a number");
  check_bounds(path, value, bounds);
  // Beyond this, what is computed of it would leave the range of a double.
  const double size = std::abs(value.get<double>());
  if (!(size == 0 || (size >= 1 / limits::kMagnitude && size <= limits::kMagnitude)))
    fail(path, value,
         fmt::format("0 or a number of size {:g} to {:g}", 1 / limits::kMagnitude,
                     limits::kMagnitude));
  out = value.get<double>();
}

void JsonReader::convert(const Json& value, const std::string& path, std::string& out,
                         Bounds bounds) const {
  if (!value.is_string()) fail(path, value, "a string");
  out = value.get<std::string>();
  require_line(out, fmt::format("{}: {}", file_, path), most_bytes(bounds));
}

void JsonReader::check_key(const std::string& path, const std::string& key) const {
  require_key(key, fmt::format("{}: {}", file_, path));
}

void JsonSchemaWriter::add(std::string_view key, Json schema, std::string_view meaning) {
  schema["description"] = meaning;
  properties_[std::string(key)] = std::move(schema);
}

Json JsonSchemaWriter::with_bounds(std::string_view type, Bounds bounds) {
  Json schema{{"type", type}};
  if (bounds.low) schema["minimum"] = *bounds.low;
  if (bounds.high) schema["maximum"] = *bounds.high;
  return schema;
}

Json JsonSchemaWriter::with_length(Bounds bounds) {
  Json schema{{"type", "string"}};
  // JSON Schema counts characters, which are at most as many.
  if (bounds.high) schema["maxLength"] = most_bytes(bounds);
  return schema;
}

Json JsonSchemaWriter::take() {
  return Json{{"type", "object"},
              {"properties", std::move(properties_)},
              {"required", std::move(required_)},
              {"additionalProperties", false}};
}

}  // namespace meshplan
