// Classes, their fields, and what imports stand for.
#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "python/interpreter.hpp"

namespace meshplan::planner::python {
namespace {

constexpr int kDeepestBases = 12;
constexpr int kDeepestImports = 12;
constexpr int kMostParents = 12;
constexpr std::size_t kMostModuleBytes = std::size_t{1} << 22;  // of all files together

/// "/a/b/c.py": "/a/b"; "" of a name alone.
std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash == 0 ? 1 : slash);
}

std::string joined(const std::string& folder, const std::string& name) {
  if (folder.empty() || name.empty()) return folder + name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

/// The folder around one: of "" it is "..", of "../a" "..".
std::string parent_of(const std::string& folder) {
  if (folder.empty() || folder == ".") return "..";
  if (folder == "/") return folder;
  if (folder == ".." || folder.ends_with("/..")) return folder + "/..";
  const std::size_t slash = folder.rfind('/');
  if (slash == std::string::npos) return "";
  return slash == 0 ? "/" : folder.substr(0, slash);
}

}  // namespace

Module* Interpreter::try_module(const std::string& path) {
  if (const auto known = modules_.find(path); known != modules_.end()) return known->second.get();
  if (!read_file_ || num_modules_ >= kMostModules || bytes_ > kMostModuleBytes) return nullptr;
  auto text = read_file_(path);
  if (!text) {
    modules_[path] = nullptr;
    return nullptr;
  }
  ++num_modules_;
  bytes_ += text->size();
  try {
    return &load(path, std::move(*text));
  } catch (const ConfigError&) {  // what is no Python here may be of a newer one
    modules_[path] = nullptr;
    return nullptr;
  }
}

/// "..configs" and "torchtitan.config" as seen from a file; null where there is none.
Module* Interpreter::find_module(const std::string& importer, const std::string& module) {
  const std::size_t dots = std::min(module.find_first_not_of('.'), module.size());
  std::string path = module.substr(dots);
  std::ranges::replace(path, '.', '/');
  std::string folder = folder_of(importer);
  const auto try_in = [&](const std::string& root) {
    Module* found = path.empty() ? nullptr : try_module(joined(root, path + ".py"));
    return found != nullptr ? found : try_module(joined(joined(root, path), "__init__.py"));
  };
  if (dots > 0) {
    for (std::size_t i = 1; i < dots; ++i) folder = parent_of(folder);
    return try_in(folder);
  }
  // The folder that its packages lie in is that of this file or one around it.
  for (int i = 0; i < kMostParents; ++i) {
    if (Module* found = try_in(folder)) return found;
    const std::string parent = parent_of(folder);
    if (parent == folder) return nullptr;
    folder = parent;
  }
  return nullptr;
}

/// What an import stands for, as far as its file is there.
Value Interpreter::resolved(const Value& value, int depth) {
  if (!is_object(value, ObjectKind::Symbol) || depth > kDeepestImports) return value;
  step();
  const Object& symbol = *value.object;
  if (symbol.name.empty()) return value;  // a module
  Module* module = find_module(symbol.importer->file, symbol.module);
  if (module == nullptr) return value;
  const auto found = module->globals->names.find(symbol.name);
  if (found != module->globals->names.end()) {
    if (is_object(found->second, ObjectKind::Symbol) && found->second.object == &symbol)
      return value;
    return resolved(found->second, depth + 1);
  }
  return value;
}

Value Interpreter::attribute(const Value& of, const std::string& field, int depth) {
  step();
  if (of.is(ValueKind::Text)) {
    Object& method = made(ObjectKind::Method, field);
    method.self = of;
    return reference(&method);
  }
  if (!of.is(ValueKind::Object) || depth > kDeepestBases) return unknown("", "");
  Object& object = *of.object;
  switch (object.kind) {
    case ObjectKind::Instance: {
      if (const Value* found = object.find(field)) return resolved(*found);
      for (const auto& [key, value] : object.initial)
        if (key == field) return value;
      if (object.of_class == nullptr || !object.touched.empty()) return unknown("", "");
      if (auto initial = initial_field(*object.of_class, field, 0)) {
        if (!object.unpacked.empty()) return unknown("", "");
        object.initial.emplace_back(field, *initial);
        return *initial;
      }
      return unknown("", "");
    }
    case ObjectKind::Class: {
      for (const Statement& statement : object.definition->body)
        if (statement.kind == StatementKind::Class && statement.text == field) {
          for (const auto& [key, value] : object.initial)
            if (key == field) return value;
          Object& inner = made(ObjectKind::Class, object.name + "." + field);
          inner.definition = &statement;
          inner.scope = object.scope;
          object.initial.emplace_back(field, reference(&inner));
          return reference(&inner);
        }
      bool known = true;
      for (Object* base : bases_of(object, depth, known)) {
        Value inherited = attribute(reference(base), field, depth + 1);
        if (!inherited.is(ValueKind::Unknown)) return inherited;
      }
      Object& symbol = made(ObjectKind::Symbol, object.name + "." + field);
      symbol.importer = object.scope->module;
      return reference(&symbol);
    }
    case ObjectKind::Symbol: {
      Object& inner =
          made(ObjectKind::Symbol, object.name.empty() ? field : object.name + "." + field);
      inner.module = object.module;
      inner.importer = object.importer;
      return object.name.empty() ? resolved(reference(&inner)) : reference(&inner);
    }
    case ObjectKind::List:
    case ObjectKind::Dict: {
      Object& method = made(ObjectKind::Method, field);
      method.self = of;
      return reference(&method);
    }
    default:
      return unknown("", "");
  }
}

/// The classes that it names as its bases; `known` becomes false where one is not followed.
std::vector<Object*> Interpreter::bases_of(Object& of_class, int depth, bool& known) {
  std::vector<Object*> bases;
  if (depth > kDeepestBases) known = false;
  if (depth > kDeepestBases) return bases;
  Frame frame{.scope = of_class.scope};
  for (const NodePtr& base : of_class.definition->targets) {
    const Value value = value_of(*base, frame);
    if (is_object(value, ObjectKind::Class) && value.object != &of_class)
      bases.push_back(value.object);
    else if (dotted_text(*base) != "object")
      known = false;
  }
  return bases;
}

/// What a class gives a field that nobody names; absent where it gives none.
std::optional<Value> Interpreter::initial_field(Object& of_class, const std::string& field,
                                                int depth) {
  step();
  if (depth > kDeepestBases) return std::nullopt;
  Frame frame{.scope = of_class.scope};
  for (const Statement& statement : of_class.definition->body) {
    step();
    if (statement.kind != StatementKind::Assign || statement.targets.size() != 1 ||
        statement.targets[0]->kind != NodeKind::Name || statement.targets[0]->text != field)
      continue;
    const Node& value = *statement.value;
    const std::string callee =
        value.kind == NodeKind::Call ? dotted_text(*value.items[0]) : std::string();
    if (callee != "field" && callee != "dataclasses.field") return value_of(value, frame);
    for (const Argument& argument : value.arguments) {
      if (argument.name == "default") return value_of(*argument.value, frame);
      if (argument.name == "default_factory") {
        if (argument.value->kind == NodeKind::Lambda)
          return value_of(*argument.value->items[0], frame);
        const std::string factory = dotted_text(*argument.value);
        if (factory == "list") return made_list({});
        if (factory == "dict") return reference(&made(ObjectKind::Dict));
        const Value made_by = value_of(*argument.value, frame);
        if (made_by.is(ValueKind::Unknown)) return unknown_at(value, frame);
        return called(made_by, {}, value, frame);
      }
    }
    return std::nullopt;
  }
  bool known = true;
  for (Object* base : bases_of(of_class, depth, known))
    if (auto inherited = initial_field(*base, field, depth + 1)) return inherited;
  return std::nullopt;
}

/// Gives an instance all fields that its classes have values for.
void Interpreter::initialize(Object& instance) {
  if (instance.of_class == nullptr || !instance.unpacked.empty()) return;
  std::vector<Object*> classes = {instance.of_class};
  bool known = true;
  for (std::size_t i = 0; i < classes.size() && classes.size() < 32; ++i)
    for (Object* base : bases_of(*classes[i], 0, known)) classes.push_back(base);
  for (const Object* each : classes)
    for (const Statement& statement : each->definition->body)
      if (statement.kind == StatementKind::Assign && statement.targets.size() == 1 &&
          statement.targets[0]->kind == NodeKind::Name && statement.text.empty())
        attribute(reference(&instance), statement.targets[0]->text);
}

std::vector<std::pair<std::string, Value>> Interpreter::all_fields(Object& instance) {
  initialize(instance);
  auto fields = instance.fields;
  for (const auto& [key, value] : instance.initial)
    if (instance.find(key) == nullptr) fields.emplace_back(key, value);
  step(fields.size());
  return fields;
}

std::vector<std::string> Interpreter::classes_of(const Value& value) {
  std::vector<std::string> names;
  if (!is_object(value, ObjectKind::Instance)) return names;
  names.push_back(value.object->name);
  if (value.object->of_class == nullptr) return names;
  std::vector<Object*> classes = {value.object->of_class};
  bool known = true;
  for (std::size_t i = 0; i < classes.size() && classes.size() < 32; ++i) {
    for (const NodePtr& base : classes[i]->definition->targets) names.push_back(dotted_text(*base));
    for (Object* base : bases_of(*classes[i], 0, known)) classes.push_back(base);
  }
  return names;
}

/// Absent: what it is made of is not all among the files.
std::optional<bool> Interpreter::has_attribute(const Value& of, const std::string& field) {
  if (!is_object(of, ObjectKind::Instance)) return std::nullopt;
  Object& object = *of.object;
  if (object.find(field) != nullptr || !attribute(of, field).is(ValueKind::Unknown)) return true;
  if (object.of_class == nullptr || !object.touched.empty() || !object.unpacked.empty())
    return std::nullopt;
  std::vector<Object*> classes = {object.of_class};
  bool known = true;
  for (std::size_t i = 0; i < classes.size() && classes.size() < 32; ++i)
    for (Object* base : bases_of(*classes[i], 0, known)) classes.push_back(base);
  return known && classes.size() < 32 ? std::optional<bool>(false) : std::nullopt;
}

namespace {

/// Of what Python brings along; absent of other names, and of values that may be anything.
std::optional<bool> is_of_type(const Value& value, std::string_view type) {
  const bool is_class = value.is(ValueKind::Object);
  if (type == "str") {
    if (!is_class) return value.is(ValueKind::Text);
  } else if (type == "bool") {
    if (!is_class) return value.is(ValueKind::Bool);
  } else if (type == "int") {
    if (!is_class) return value.is(ValueKind::Whole) || value.is(ValueKind::Bool);
  } else if (type == "float") {
    if (!is_class) return value.is(ValueKind::Real);
  } else if (type == "dict") {
    if (!is_class || value.object->kind != ObjectKind::Instance)
      return is_class && value.object->kind == ObjectKind::Dict;
  } else if (type == "list" || type == "tuple") {  // one kind here
    if (!is_class) return false;
    return value.object->kind == ObjectKind::Dict ? std::optional<bool>(false) : std::nullopt;
  } else {
    return std::nullopt;
  }
  // A call that is not known may give anything, unless it is called a configuration or somebody has
  // set its fields.
  const Object& object = *value.object;
  const bool has_fields = object.of_class != nullptr || object.changed ||
                          object.name.ends_with("Config") || object.name.ends_with("_config");
  if (object.kind == ObjectKind::Instance && !has_fields) return std::nullopt;
  return object.kind == ObjectKind::Symbol ? std::nullopt : std::optional<bool>(false);
}

}  // namespace

std::optional<bool> Interpreter::is_instance(const Value& value, const Value& of_class) {
  if (value.is(ValueKind::Unknown)) return std::nullopt;
  if (is_object(of_class, ObjectKind::List)) {
    bool known = true;
    for (const Value& each : of_class.object->items) {
      const auto is = is_instance(value, each);
      if (is && *is) return true;
      known = known && is.has_value();
    }
    return known ? std::optional<bool>(false) : std::nullopt;
  }
  if (of_class.is(ValueKind::Unknown)) return is_of_type(value, of_class.text);
  if (value.is(ValueKind::Unknown) || !of_class.is(ValueKind::Object)) return std::nullopt;
  if (!is_object(value, ObjectKind::Instance))
    return is_object(value, ObjectKind::Symbol) ? std::nullopt : std::optional<bool>(false);
  if (value.object->name == of_class.object->name) return true;
  if (value.object->of_class == nullptr || of_class.object->kind != ObjectKind::Class)
    return std::nullopt;
  std::vector<Object*> classes = {value.object->of_class};
  bool known = true;
  for (std::size_t i = 0; i < classes.size() && classes.size() < 32; ++i) {
    if (classes[i]->definition == of_class.object->definition) return true;
    for (Object* base : bases_of(*classes[i], 0, known)) classes.push_back(base);
  }
  return known ? std::optional<bool>(false) : std::nullopt;
}

}  // namespace meshplan::planner::python
