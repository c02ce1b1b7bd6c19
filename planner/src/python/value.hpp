// What a Python expression is worth, as far as it can be told without running anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshplan::planner::python {

struct Object;
struct Scope;
struct Module;
struct Statement;

enum class ValueKind { Unknown, None, Bool, Whole, Real, Text, Object };

struct Value {
  ValueKind kind = ValueKind::None;
  std::int64_t whole = 0;  // Bool too
  double real = 0;
  std::string text;          // Text; of Unknown its source
  std::string place;         // of Unknown: "FILE:12"
  Object* object = nullptr;  // of Unknown: whose field it would be
  std::string field;

  bool is(ValueKind other) const { return kind == other; }
  bool is_number() const { return kind == ValueKind::Whole || kind == ValueKind::Real; }
  double number() const { return kind == ValueKind::Whole ? static_cast<double>(whole) : real; }
};

inline Value none() {
  return {};
}
inline Value boolean(bool value) {
  return {.kind = ValueKind::Bool, .whole = value ? 1 : 0};
}
inline Value whole(std::int64_t value) {
  return {.kind = ValueKind::Whole, .whole = value};
}
inline Value real(double value) {
  return {.kind = ValueKind::Real, .real = value};
}
inline Value text(std::string value) {
  return {.kind = ValueKind::Text, .text = std::move(value)};
}
inline Value unknown(std::string source, std::string place) {
  return {.kind = ValueKind::Unknown, .text = std::move(source), .place = std::move(place)};
}
inline Value reference(Object* object) {
  return {.kind = ValueKind::Object, .object = object};
}

enum class ObjectKind {
  List,
  Dict,      // by key_text()
  Instance,  // what a call of a class, or of a function that is not known, gives
  Class,
  Function,
  Symbol,  // what is imported, before anybody asks what it is
  Method,  // of a list, dict or text
};

/// Whatever Python has references to. All belong to the interpreter: they may refer to each other
/// in circles.
struct Object {
  ObjectKind kind = ObjectKind::List;
  std::string name;          // of what is called; of a Symbol what is imported, "" for a module
  std::vector<Value> items;  // of a list; positional arguments
  std::vector<std::pair<std::string, Value>> fields;   // of a dict; keyword arguments
  std::vector<std::pair<std::string, Value>> initial;  // fields that the class gave
  std::string unpacked;                                // the text of "**" that is not known
  std::vector<Value> touched;                          // calls that may have changed it
  bool changed = false;                                // after it was made
  Object* of_class = nullptr;
  Value self;                             // of a method
  const Statement* definition = nullptr;  // of a class or function
  Scope* scope = nullptr;                 // in which that stands
  std::string module;                     // of a symbol
  Module* importer = nullptr;

  Value* find(std::string_view key) {
    for (auto& [each, value] : fields)
      if (each == key) return &value;
    return nullptr;
  }
  void set(std::string_view key, Value value) {
    if (Value* found = find(key))
      *found = std::move(value);
    else
      fields.emplace_back(key, std::move(value));
  }
};

inline bool is_object(const Value& value, ObjectKind kind) {
  return value.is(ValueKind::Object) && value.object->kind == kind;
}

/// Of a key that is no text, so that it is none of the texts either.
inline constexpr char kOtherKey = '\x01';

/// What a dict finds a key by: of whole numbers, None and tuples of them, their text behind
/// kOtherKey; absent of what is not known.
std::optional<std::string> key_text(const Value& key);

}  // namespace meshplan::planner::python
