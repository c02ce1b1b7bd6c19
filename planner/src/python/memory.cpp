// What an interpreter makes: within bounds, and JSON of it.
#include <fmt/format.h>

#include "core/error.hpp"
#include "python/interpreter.hpp"
#include "python/tree.hpp"

namespace meshplan::planner::python {

constexpr int kDeepestTree = 64;

std::optional<std::string> key_text(const Value& key) {
  switch (key.kind) {
    case ValueKind::Text:
      return key.text;
    case ValueKind::None:
      return kOtherKey + std::string("None");
    case ValueKind::Bool:
    case ValueKind::Whole:  // True is 1
      return kOtherKey + std::to_string(key.whole);
    default:
      break;
  }
  if (!is_object(key, ObjectKind::List) || !key.object->touched.empty()) return std::nullopt;
  std::string text = kOtherKey + std::string("(");
  for (const Value& item : key.object->items) {
    if (item.is(ValueKind::Object)) return std::nullopt;  // tuples of tuples
    const auto part = key_text(item);
    if (!part || text.size() > 256) return std::nullopt;
    text += (item.is(ValueKind::Text) ? "'" + *part + "'" : part->substr(1)) + ",";
  }
  return text + ")";
}

bool is_call(const Json& value) {
  return value.is_object() && value.contains(kCall);
}

bool is_unknown(const Json& value) {
  return value.is_object() && value.contains(kSource);
}

std::string call_name(const Json& value) {
  return is_call(value) ? value.at(kCall).get<std::string>() : std::string();
}

void Interpreter::too_much(std::string_view rule) const {
  throw ConfigError(fmt::format("{}: {}", main_file_, rule));
}

void Interpreter::step(std::size_t count) {
  steps_ += count;
  if (steps_ > kMostSteps)
    too_much(fmt::format("following it takes more than {} steps", kMostSteps));
}

Object& Interpreter::made(ObjectKind kind, std::string name) {
  step();
  if (objects_.size() >= kMostObjects)
    too_much(fmt::format("its names stand for more than {} values", kMostObjects));
  Object& object = objects_.emplace_back();
  object.kind = kind;
  object.name = std::move(name);
  return object;
}

Scope& Interpreter::made_scope(Scope* outer, Module* module) {
  step();
  Scope& scope = scopes_.emplace_back();
  scope.outer = outer;
  scope.module = module;
  return scope;
}

Value Interpreter::made_list(std::vector<Value> items) {
  step(items.size());
  if (items.size() > kMostItems)
    too_much(fmt::format("a list has more than {} values", kMostItems));
  Object& list = made(ObjectKind::List);
  list.items = std::move(items);
  return reference(&list);
}

std::string Interpreter::place(const Node& node, const Frame& frame) const {
  return fmt::format("{}:{}", frame.scope->module->file, node.line);
}

Value Interpreter::unknown_at(const Node& node, const Frame& frame) const {
  return unknown(std::string(node.source), place(node, frame));
}

Json Interpreter::to_json(const Value& value, bool initial) {
  std::size_t count = 0;
  return json_of(value, initial, 0, count);
}

namespace {

/// Keys that say something about a value here, and are no names of fields in Python.
bool is_reserved(const std::string& key) {
  return key.starts_with('$') && key != kTransforms;
}

Json unknown_json(const std::string& source, const std::string& place) {
  Json json = {{kSource, source}};
  if (!place.empty()) json[kPlace] = place;
  return json;
}

}  // namespace

Json Interpreter::json_of(const Value& value, bool initial, int depth, std::size_t& count) {
  count += 1 + value.text.size() / 64;
  if (count > kMostValues)
    too_much(fmt::format("its names stand for more than {} values", kMostValues));
  switch (value.kind) {
    case ValueKind::Unknown:
      return unknown_json(value.text, value.place);
    case ValueKind::None:
      return nullptr;
    case ValueKind::Bool:
      return value.whole != 0;
    case ValueKind::Whole:
      return value.whole;
    case ValueKind::Real:
      return value.real;
    case ValueKind::Text:
      return value.text;
    case ValueKind::Object:
      break;
  }
  Object& object = *value.object;
  const bool tells = object.kind == ObjectKind::List || object.kind == ObjectKind::Dict ||
                     object.kind == ObjectKind::Instance;
  if (!tells || depth > kDeepestTree) return unknown_json(object.name, "");
  if (object.kind == ObjectKind::List) {
    if (!object.touched.empty()) return json_of(object.touched[0], initial, depth + 1, count);
    Json list = Json::array();
    for (const Value& item : object.items) list.push_back(json_of(item, initial, depth + 1, count));
    return list;
  }
  Json json = Json::object();
  if (object.kind == ObjectKind::Instance && !object.name.empty()) json[kCall] = object.name;
  for (const auto& [key, field] : object.fields)
    if (!is_reserved(key)) json[key] = json_of(field, initial, depth + 1, count);
  if (initial && object.kind == ObjectKind::Instance) initialize(object);
  for (const auto& [key, field] : object.initial)
    if (!json.contains(key) && !is_reserved(key) &&
        (initial || (field.is(ValueKind::Object) && field.object->changed)))
      json[key] = json_of(field, initial, depth + 1, count);
  if (!object.unpacked.empty()) json[kUnpacked] = object.unpacked;
  if (!object.self.is(ValueKind::None))
    json[kSelf] = json_of(object.self, initial, depth + 1, count);
  for (const Value& item : object.items)
    json[kArguments].push_back(json_of(item, initial, depth + 1, count));
  for (const Value& call : object.touched)
    json[kTouched].push_back(unknown_json(call.text, call.place));
  return json;
}

}  // namespace meshplan::planner::python
