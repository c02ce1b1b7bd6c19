// Calls: of functions that are followed, of classes, and of what Python brings along.
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "python/arithmetic.hpp"
#include "python/interpreter.hpp"
#include "python/tree.hpp"

namespace meshplan::planner::python {
namespace {

/// Keys that are no texts are looked up, but not listed.
bool has_other_keys(const Object& dict) {
  return std::ranges::any_of(dict.fields,
                             [](const auto& field) { return field.first.starts_with(kOtherKey); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos;) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
  return text;
}

}  // namespace

/// False: something is unpacked that is not known.
bool Interpreter::arguments_of(const Node& node, Frame& frame, Arguments& arguments) {
  for (const Argument& each : node.arguments) {
    Value value = value_of(*each.value, frame);
    if (each.name.empty()) {
      arguments.positional.push_back(std::move(value));
    } else if (each.name == "*") {
      const auto items = items_of(value);
      if (!items) arguments.unpacked = each.value->source;
      if (items)
        arguments.positional.insert(arguments.positional.end(), items->begin(), items->end());
    } else if (each.name == "**") {
      if (is_object(value, ObjectKind::Dict) && value.object->touched.empty())
        for (const auto& [key, field] : value.object->fields)
          arguments.named.emplace_back(key, field);
      else
        arguments.unpacked = each.value->source;
    } else {
      arguments.named.emplace_back(each.name, std::move(value));
    }
    step(arguments.named.size() + arguments.positional.size());
    if (arguments.named.size() + arguments.positional.size() > kMostItems)
      too_much("a call has too many arguments");
  }
  return arguments.unpacked.empty();
}

Value Interpreter::symbolic(std::string name, Arguments arguments) {
  Object& instance = made(ObjectKind::Instance, std::move(name));
  instance.items = std::move(arguments.positional);
  for (auto& [key, value] : arguments.named) instance.set(key, std::move(value));
  instance.unpacked = std::move(arguments.unpacked);
  return reference(&instance);
}

Value Interpreter::call_of(const Node& node, Frame& frame) {
  const Node& function = *node.items[0];
  const std::string name = dotted_text(function);
  Arguments arguments;
  arguments_of(node, frame, arguments);
  Value callee = value_of(function, frame);
  if (!callee.is(ValueKind::Unknown)) return called(callee, std::move(arguments), node, frame);
  if (!name.empty() && name.find('.') == std::string::npos) {
    bool found = false;
    Value result = built_in(name, arguments, node, frame, found);
    if (found) return result;
  }
  if (!name.empty() || function.kind == NodeKind::Attribute) {
    Value self;
    if (function.kind == NodeKind::Attribute) {
      self = value_of(*function.items[0], frame);
      if (self.is(ValueKind::Unknown)) {
        if (name.empty()) return unknown_at(node, frame);
        self = none();
      }
    }
    if (transform(function, self, arguments)) return arguments.positional[0];
    Value result = symbolic(name.empty() ? function.text : name, std::move(arguments));
    result.object->self = self;
    if (given_fields_ && !self.is(ValueKind::None))
      result.object->initial = given_fields_(*result.object);
    return result;
  }
  return unknown_at(node, frame);
}

bool Interpreter::transform(const Node& function, const Value& self, Arguments& arguments) {
  if (std::ranges::find(transforms_, function.text) == transforms_.end()) return false;
  if (arguments.positional.size() != 1 || !is_object(arguments.positional[0], ObjectKind::Instance))
    return false;
  Object& given = *arguments.positional[0].object;
  if (given.find(kTransforms) == nullptr) given.set(kTransforms, made_list({}));
  given.find(kTransforms)->object->items.push_back(self);
  given.changed = true;
  return true;
}

Value Interpreter::called(const Value& callee, Arguments arguments, const Node& node,
                          Frame& frame) {
  if (!callee.is(ValueKind::Object)) return unknown_at(node, frame);
  Object& object = *callee.object;
  switch (object.kind) {
    case ObjectKind::Function:
      return called_function(object, std::move(arguments), node, frame);
    case ObjectKind::Class:
      return instance_of(object, std::move(arguments));
    case ObjectKind::Method:
      return method(object, arguments, node, frame);
    case ObjectKind::Symbol: {
      bool found = false;
      const std::string full =
          object.name.empty() ? object.module : object.module + "." + object.name;
      if (const auto known = results_.find(full); known != results_.end()) return known->second;
      Value result = built_in(full, arguments, node, frame, found);
      if (found) return result;
      const std::string written = node.items.empty() ? "" : dotted_text(*node.items[0]);
      return symbolic(written.empty() ? object.name : written, std::move(arguments));
    }
    default:
      return symbolic(object.name, std::move(arguments));
  }
}

/// The parameters' values; false where nobody knows them.
bool Interpreter::bind(Object& function, Arguments& arguments, Scope& scope, const Node& node,
                       Frame& frame) {
  // What partial() bound comes first, unless the call says otherwise.
  std::vector<std::pair<std::string, Value>> named = function.fields;
  for (auto& [key, value] : arguments.named) {
    const auto same = std::ranges::find(named, key, &std::pair<std::string, Value>::first);
    if (same != named.end())
      same->second = value;
    else
      named.emplace_back(key, value);
  }
  std::vector<Value> positional = function.items;
  positional.insert(positional.end(), arguments.positional.begin(), arguments.positional.end());
  std::size_t next = 0;
  Frame outside{.scope = function.scope};
  for (const Parameter& parameter : function.definition->parameters) {
    if (parameter.kind == '*') {
      scope.names[parameter.name] = made_list(
          {positional.begin() + static_cast<std::ptrdiff_t>(std::min(next, positional.size())),
           positional.end()});
      next = positional.size();
      continue;
    }
    if (parameter.kind == '2') {
      Object& rest = made(ObjectKind::Dict);
      rest.fields = named;
      named.clear();
      scope.names[parameter.name] = reference(&rest);
      continue;
    }
    const auto same =
        std::ranges::find(named, parameter.name, &std::pair<std::string, Value>::first);
    if (same != named.end()) {
      scope.names[parameter.name] = same->second;
      named.erase(same);
    } else if (!parameter.keyword_only && next < positional.size()) {
      scope.names[parameter.name] = positional[next++];
    } else if (parameter.initial) {
      scope.names[parameter.name] = value_of(*parameter.initial, outside);
    } else {
      scope.names[parameter.name] = unknown(parameter.name, place(node, frame));
    }
  }
  return named.empty() && next >= positional.size() && arguments.unpacked.empty();
}

Value Interpreter::called_function(Object& function, Arguments arguments, const Node& node,
                                   Frame& frame) {
  const bool is_opaque = std::ranges::find(opaque_, function.name) != opaque_.end();
  if (!function.definition->is_plain || is_opaque)
    return symbolic(function.name, std::move(arguments));
  const Depth depth(calls_);
  if (calls_ > kDeepestCalls)
    throw ConfigError(fmt::format("{}: {}(): functions call each other more than {} deep",
                                  main_file_, function.name, kDeepestCalls));
  Frame inside{.scope = &made_scope(function.scope, function.scope->module)};
  if (!bind(function, arguments, *inside.scope, node, frame))
    return unknown(node.source.empty() ? function.name : std::string(node.source),
                   place(node, frame));
  run(function.definition->body, inside);
  if (inside.uncertain) return unknown(inside.why, inside.where);
  return inside.returned;
}

Value Interpreter::instance_of(Object& of_class, Arguments arguments) {
  Value result = symbolic(of_class.name, std::move(arguments));
  result.object->of_class = &of_class;
  return result;
}

std::optional<std::vector<Value>> Interpreter::items_of(const Value& value) {
  if (!value.is(ValueKind::Object) || !value.object->touched.empty()) return std::nullopt;
  const Object& object = *value.object;
  step(object.items.size() + object.fields.size());
  if (object.kind == ObjectKind::List) return object.items;
  if (object.kind != ObjectKind::Dict) return std::nullopt;
  if (has_other_keys(object)) return std::nullopt;
  std::vector<Value> keys;
  for (const auto& [key, field] : object.fields) keys.push_back(text(key));
  return keys;
}

Value Interpreter::method(const Object& method, Arguments& arguments, const Node& node,
                          Frame& frame) {
  if (method.self.is(ValueKind::Text)) return text_method(method, arguments, node, frame);
  Object& self = *method.self.object;
  const std::string& name = method.name;
  const std::vector<Value>& given = arguments.positional;
  const bool is_list = self.kind == ObjectKind::List;
  if (!self.touched.empty()) return unknown_at(node, frame);
  if (is_list && name == "append" && given.size() == 1) {
    if (self.items.size() >= kMostItems)
      too_much(fmt::format("a list has more than {} values", kMostItems));
    self.items.push_back(given[0]);
    self.changed = true;
    return none();
  }
  if (is_list && name == "extend" && given.size() == 1)
    if (const auto more = items_of(given[0])) {
      self.items.insert(self.items.end(), more->begin(), more->end());
      if (self.items.size() > kMostItems)
        too_much(fmt::format("a list has more than {} values", kMostItems));
      self.changed = true;
      return none();
    }
  if (name == "copy" && given.empty()) return copied(method.self, kDeepestCopy);
  const auto looked_up = given.empty() ? std::nullopt : key_text(given[0]);
  if (!is_list && (name == "get" || name == "pop") && looked_up) {
    Value* found = self.find(*looked_up);
    Value result = found != nullptr ? *found : given.size() > 1 ? given[1] : none();
    if (name == "pop" && found != nullptr) {
      self.changed = true;
      std::erase_if(self.fields, [&](const auto& field) { return field.first == *looked_up; });
    }
    return resolved(result);
  }
  if (!is_list && name == "update" && given.size() == 1 && is_object(given[0], ObjectKind::Dict)) {
    step(given[0].object->fields.size() * (self.fields.size() + 1));
    for (const auto& [key, field] : std::vector(given[0].object->fields)) self.set(key, field);
    self.changed = true;
    return none();
  }
  const bool lists_keys = name == "items" || name == "keys";
  if (!is_list && given.empty() && (name == "values" || (lists_keys && !has_other_keys(self)))) {
    std::vector<Value> items;
    step(self.fields.size());
    for (const auto& [key, field] : self.fields) {
      const Value pair = name == "items"  ? made_list({text(key), field})
                         : name == "keys" ? text(key)
                                          : field;
      items.push_back(pair);
    }
    return made_list(std::move(items));
  }
  touch(method.self, unknown_at(node, frame), 0);
  return unknown_at(node, frame);
}

Value Interpreter::text_method(const Object& method, const Arguments& arguments, const Node& node,
                               Frame& frame) {
  const std::string& name = method.name;
  const std::string& self = method.self.text;
  const std::vector<Value>& given = arguments.positional;
  step(1 + self.size() / 64);
  const bool of_texts =
      std::ranges::all_of(given, [](const Value& each) { return each.is(ValueKind::Text); });
  if (!of_texts || !arguments.named.empty() || !arguments.unpacked.empty())
    return unknown_at(node, frame);
  if ((name == "lower" || name == "upper") && given.empty()) {
    std::string changed = self;
    for (char& c : changed)
      if (name == "lower" ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z')
        c = static_cast<char>(c ^ 0x20);
    return text(std::move(changed));
  }
  if (name == "replace" && given.size() == 2 &&
      self.size() * (1 + given[1].text.size()) < kMostItems)
    return text(replaced(self, given[0].text, given[1].text));
  if (name == "startswith" && given.size() == 1) return boolean(self.starts_with(given[0].text));
  if (name == "endswith" && given.size() == 1) return boolean(self.ends_with(given[0].text));
  return unknown_at(node, frame);
}

Value Interpreter::copied(const Value& value, int depth) {
  if (!value.is(ValueKind::Object) || depth > kDeepestCopy) return value;
  const ObjectKind kind = value.object->kind;
  if (kind != ObjectKind::List && kind != ObjectKind::Dict && kind != ObjectKind::Instance)
    return value;
  Object& copy = made(kind);
  step(value.object->items.size() + value.object->fields.size());
  copy = *value.object;
  for (Value& item : copy.items) item = copied(item, depth + 1);
  for (auto& [key, field] : copy.fields) field = copied(field, depth + 1);
  for (auto& [key, field] : copy.initial) field = copied(field, depth + 1);
  return reference(&copy);
}

}  // namespace meshplan::planner::python
