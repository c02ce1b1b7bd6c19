// One declaration per struct serves reading, writing and the published schema:
//
//   template <class Visitor> void fields(Visitor& v, Cluster& c) {
//     v.required("name", c.name, "what it is called");
//     v.optional("nodes", c.num_nodes, "...", at_least(1));   // default = the member's initializer
//   }
//
// Include this only from .cpp files: it pulls in the whole JSON library.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/enum_names.hpp"
#include "core/error.hpp"

namespace meshplan {

using Json = nlohmann::ordered_json;

/// Any JSON value, kept as it is: a part of a file that another reader understands.
struct RawJson {
  Json value;
  std::string schema = {};  // where its schema stands: "#/$defs/plan"; empty = any value
};

/// Bounds of a number, both inclusive; absent = unbounded. Of a string `high` is the most bytes;
/// absent = limits::kLineBytes.
struct Bounds {
  std::optional<double> low;
  std::optional<double> high;
};
inline Bounds at_least(double low) {
  return {low, std::nullopt};
}
inline Bounds between(double low, double high) {
  return {low, high};
}
inline Bounds at_most(double high) {
  return {std::nullopt, high};
}
/// Of a string that names something: it is at most limits::kNameBytes long.
Bounds of_name();

class JsonReader;
class JsonWriter;
class JsonSchemaWriter;

template <class T>
concept DescribedStruct = requires(JsonReader& reader, T& value) {
  fields(reader, value);
};

/// A value as messages quote it: cut where it is long.
std::string quoted(const Json& value);

/// Each string and key inside `value` is one printable line, as a reader would have it.
/// @param place  of `value`: "FILE: PATH" @throws ConfigError
void require_lines(const Json& value, const std::string& place);

/// @throws ConfigError naming the file, line and column of a syntax error
Json parse_json(std::string_view text, std::string_view file);

/// Reads one JSON object into one struct. Every error names file, path, value and what was
/// expected.
class JsonReader {
 public:
  /// @param path  of this object inside the file, "" for the root
  /// @param assumed  if given, collects "path = value" of every optional key that was absent
  JsonReader(const Json& object, std::string file, std::string path,
             std::vector<std::string>* assumed = nullptr);

  template <class T>
  void required(std::string_view key, T& out, std::string_view /*meaning*/, Bounds bounds = {}) {
    known_.emplace_back(key);
    const Json* found = find(key);
    if (found == nullptr)
      missing_.emplace_back(key);
    else
      convert(*found, child(key), out, bounds);
  }

  template <class T>
  void optional(std::string_view key, T& out, std::string_view /*meaning*/, Bounds bounds = {});

  /// A key that is left out where nothing is stated; null states nothing, too.
  template <class T>
  void stated(std::string_view key, std::optional<T>& out, std::string_view /*meaning*/,
              Bounds bounds = {}) {
    known_.emplace_back(key);
    if (const Json* found = find(key)) convert(*found, child(key), out, bounds);
  }

  /// A key that is left out where it has its usual value.
  template <class T>
  void unusual(std::string_view key, T& out, const T& usual, std::string_view /*meaning*/,
               Bounds bounds = {}) {
    known_.emplace_back(key);
    const Json* found = find(key);
    if (found != nullptr)
      convert(*found, child(key), out, bounds);
    else
      out = usual;
  }

  /// @throws ConfigError for unknown keys (with the nearest known one), then for missing ones
  void finish() const;

 private:
  const Json* find(std::string_view key) const;
  std::string child(std::string_view key) const;
  /// Path of a key in the object at `path`.
  static std::string below(const std::string& path, std::string_view key);
  [[noreturn]] void fail(const std::string& path, const Json& value,
                         std::string_view expected) const;
  /// Of a value that is none of these names.
  [[noreturn]] void fail_name(const std::string& path, const Json& value,
                              const std::vector<std::string>& names) const;
  void check_bounds(const std::string& path, const Json& value, Bounds bounds) const;
  void check_key(const std::string& path, const std::string& key) const;

  void convert(const Json& value, const std::string& path, bool& out, Bounds bounds) const;
  void convert(const Json& value, const std::string& path, int& out, Bounds bounds) const;
  void convert(const Json& value, const std::string& path, std::int64_t& out, Bounds bounds) const;
  void convert(const Json& value, const std::string& path, std::uint64_t& out, Bounds bounds) const;
  void convert(const Json& value, const std::string& path, double& out, Bounds bounds) const;
  void convert(const Json& value, const std::string& path, std::string& out, Bounds bounds) const;

  void convert(const Json& value, const std::string& /*path*/, RawJson& out,
               Bounds /*bounds*/) const {
    out.value = value;
  }

  template <NamedEnum E>
  void convert(const Json& value, const std::string& path, E& out, Bounds /*bounds*/) const {
    if (value.is_string()) {
      if (const auto parsed = from_name<E>(value.template get<std::string>())) {
        out = *parsed;
        return;
      }
    }
    fail_name(path, value, all_names<E>());
  }

  template <class T>
  void convert(const Json& value, const std::string& path, std::optional<T>& out,
               Bounds bounds) const {
    if (value.is_null()) {
      out.reset();
      return;
    }
    T inner{};
    convert(value, path, inner, bounds);
    out = std::move(inner);
  }

  template <class T>
  void convert(const Json& value, const std::string& path, std::vector<T>& out,
               Bounds bounds) const {
    if (!value.is_array()) fail(path, value, "a list");
    out.clear();
    for (std::size_t i = 0; i < value.size(); ++i) {
      T item{};
      convert(value[i], path + "[" + std::to_string(i) + "]", item, bounds);
      out.push_back(std::move(item));
    }
  }

  template <class T>
  void convert(const Json& value, const std::string& path, std::map<std::string, T>& out,
               Bounds bounds) const {
    if (!value.is_object()) fail(path, value, "an object");
    out.clear();
    for (const auto& [key, item] : value.items()) {
      check_key(path, key);
      convert(item, below(path, key), out[key], bounds);
    }
  }

  template <DescribedStruct T>
  void convert(const Json& value, const std::string& path, T& out, Bounds /*bounds*/) const {
    if (!value.is_object()) fail(path, value, "an object");
    JsonReader reader(value, file_, path, assumed_);
    fields(reader, out);
    reader.finish();
  }

  const Json& object_;
  std::string file_;
  std::string path_;
  std::vector<std::string>* assumed_;
  std::vector<std::string> known_;
  std::vector<std::string> missing_;
};

/// Writes a struct, in the order of its declaration.
class JsonWriter {
 public:
  template <class T>
  void required(std::string_view key, T& value, std::string_view /*meaning*/,
                Bounds /*bounds*/ = {}) {
    object_[std::string(key)] = convert(value);
  }
  template <class T>
  void optional(std::string_view key, T& value, std::string_view /*meaning*/,
                Bounds /*bounds*/ = {}) {
    object_[std::string(key)] = convert(value);
  }
  template <class T>
  void stated(std::string_view key, std::optional<T>& value, std::string_view /*meaning*/,
              Bounds /*bounds*/ = {}) {
    if (value) object_[std::string(key)] = convert(*value);
  }
  template <class T>
  void unusual(std::string_view key, T& value, const T& usual, std::string_view /*meaning*/,
               Bounds /*bounds*/ = {}) {
    if (!(value == usual)) object_[std::string(key)] = convert(value);
  }

  Json take() { return std::move(object_); }

  template <class T>
  static Json convert(T& value) {
    if constexpr (std::same_as<T, RawJson>) {
      return value.value;
    } else if constexpr (NamedEnum<T>) {
      return std::string(name_of(value));
    } else if constexpr (DescribedStruct<T>) {
      JsonWriter writer;
      fields(writer, value);
      return writer.take();
    } else {
      return value;
    }
  }
  template <class T>
  static Json convert(std::optional<T>& value) {
    return value ? convert(*value) : Json(nullptr);
  }
  template <class T>
  static Json convert(std::vector<T>& values) {
    Json list = Json::array();
    if constexpr (std::same_as<T, bool>) {
      for (const bool value : values) list.push_back(value);
    } else {
      for (T& value : values) list.push_back(convert(value));
    }
    return list;
  }
  template <class T>
  static Json convert(std::map<std::string, T>& values) {
    Json object = Json::object();
    for (auto& [key, value] : values) object[key] = convert(value);
    return object;
  }

 private:
  Json object_ = Json::object();
};

/// Builds the JSON Schema (draft 2020-12) of a struct from the same declaration.
class JsonSchemaWriter {
 public:
  template <class T>
  void required(std::string_view key, T& value, std::string_view meaning, Bounds bounds = {}) {
    add(key, schema_of(value, bounds), meaning);
    required_.emplace_back(key);
  }
  template <class T>
  void optional(std::string_view key, T& value, std::string_view meaning, Bounds bounds = {}) {
    Json schema = schema_of(value, bounds);
    schema["default"] = JsonWriter::convert(value);
    add(key, std::move(schema), meaning);
  }
  template <class T>
  void stated(std::string_view key, std::optional<T>& value, std::string_view meaning,
              Bounds bounds = {}) {
    add(key, schema_of(value, bounds), meaning);
  }
  template <class T>
  void unusual(std::string_view key, T& value, const T& usual, std::string_view meaning,
               Bounds bounds = {}) {
    Json schema = schema_of(value, bounds);
    T shown = usual;
    schema["default"] = JsonWriter::convert(shown);
    add(key, std::move(schema), meaning);
  }

  Json take();

  template <class T>
  static Json schema_of(T& value, Bounds bounds) {
    if constexpr (std::same_as<T, RawJson>) {
      return value.schema.empty() ? Json::object() : Json{{"$ref", value.schema}};
    } else if constexpr (NamedEnum<T>) {
      return Json{{"enum", all_names<T>()}};
    } else if constexpr (DescribedStruct<T>) {
      JsonSchemaWriter writer;
      fields(writer, value);
      return writer.take();
    } else if constexpr (std::same_as<T, bool>) {
      return Json{{"type", "boolean"}};
    } else if constexpr (std::integral<T>) {
      return with_bounds("integer", bounds);
    } else if constexpr (std::floating_point<T>) {
      return with_bounds("number", bounds);
    } else {
      return with_length(bounds);
    }
  }
  template <class T>
  static Json schema_of(std::optional<T>& /*value*/, Bounds bounds) {
    T inner{};
    return Json{{"anyOf", Json::array({schema_of(inner, bounds), Json{{"type", "null"}}})}};
  }
  template <class T>
  static Json schema_of(std::vector<T>& /*value*/, Bounds bounds) {
    T inner{};
    return Json{{"type", "array"}, {"items", schema_of(inner, bounds)}};
  }
  template <class T>
  static Json schema_of(std::map<std::string, T>& /*value*/, Bounds bounds) {
    T inner{};
    return Json{{"type", "object"}, {"additionalProperties", schema_of(inner, bounds)}};
  }

 private:
  void add(std::string_view key, Json schema, std::string_view meaning);
  static Json with_bounds(std::string_view type, Bounds bounds);
  static Json with_length(Bounds bounds);

  Json properties_ = Json::object();
  std::vector<std::string> required_;
};

template <class T>
void JsonReader::optional(std::string_view key, T& out, std::string_view /*meaning*/,
                          Bounds bounds) {
  known_.emplace_back(key);
  if (const Json* found = find(key)) {
    convert(*found, child(key), out, bounds);
  } else if (assumed_ != nullptr) {
    assumed_->push_back(child(key) + " = " + JsonWriter::convert(out).dump());
  }
}

/// An index that files spell as -1 where there is none.
template <class Visitor>
void index_or_minus_one(Visitor& v, std::string_view key, std::optional<int>& index,
                        std::string_view meaning, Bounds bounds = {}) {
  int spelled = index.value_or(-1);
  v.optional(key, spelled, meaning, bounds);
  index = spelled < 0 ? std::nullopt : std::optional(spelled);
}

/// Reads a whole file's text into T. @throws ConfigError
template <DescribedStruct T>
T read_json(std::string_view text, const std::string& file,
            std::vector<std::string>* assumed = nullptr) {
  const Json root = parse_json(text, file);
  if (!root.is_object())
    throw ConfigError(file + ": expected a JSON object, got " + root.type_name());
  JsonReader reader(root, file, "", assumed);
  T value{};
  fields(reader, value);
  reader.finish();
  return value;
}

/// The JSON of `value`; reading it again gives an equal value.
template <DescribedStruct T>
Json write_json(const T& value) {
  T copy = value;  // `fields` takes a mutable reference so that one declaration serves both ways
  return JsonWriter::convert(copy);
}

template <DescribedStruct T>
Json json_schema() {
  T value{};
  return JsonSchemaWriter::schema_of(value, {});
}

}  // namespace meshplan
