#include "python/configuration.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "core/error.hpp"

namespace meshplan::planner::python {
namespace {

void collect_names(const Node& node, std::set<std::string>& names) {
  if (node.kind == NodeKind::Name) names.insert(node.text);
  for (const NodePtr& item : node.items)
    if (item) collect_names(*item, names);
  for (const Argument& argument : node.arguments) collect_names(*argument.value, names);
}

void collect_names(const Block& block, std::set<std::string>& names) {
  for (const Statement& statement : block) {
    for (const NodePtr& target : statement.targets) collect_names(*target, names);
    if (statement.value) collect_names(*statement.value, names);
    collect_names(statement.body, names);
    collect_names(statement.otherwise, names);
  }
}

bool returns(const Block& block) {
  return std::ranges::any_of(block, [](const Statement& each) {
    return each.kind == StatementKind::Return || returns(each.body) || returns(each.otherwise);
  });
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file, const ReadFile& read_file,
         const ReadingOptions& options)
      : file_(file),
        options_(options),
        interpreter_(read_file, options.transforms),
        module_(interpreter_.load(file, std::string(text))) {
    interpreter_.give_fields(options.given_fields);
    interpreter_.give_results(options.results);
    interpreter_.leave_calls(options.opaque);
    interpreter_.note_only(&module_);
    for (const Statement& statement : module_.body)
      if (statement.kind == StatementKind::Definition) functions_[statement.text] = &statement;
  }

  Configuration run(const std::string& wanted) {
    const std::string name = wanted.empty() ? only_function() : wanted;
    // It may be imported from another file, by another name.
    const Statement* function = interpreter_.function_of(module_, name);
    if (function == nullptr) {
      std::vector<std::string> names;
      for (const auto& [each, body] : functions_) names.push_back(each);
      throw ConfigError(
          fmt::format("{}: {}", file_, unknown_name_message("function", name, std::move(names))));
    }
    require_parameters(name, *function);
    const Value value = interpreter_.returned_by(module_, name, options_.arguments);
    Configuration result{.function = name, .tree = interpreter_.to_json(value, false)};
    if (is_unknown(result.tree))
      throw ConfigError(fmt::format("{}: {}() returns nothing that is understood: '{}' ({})", file_,
                                    name, result.tree.at(kSource).get<std::string>(),
                                    result.tree.value(kPlace, file_)));
    if (!is_call(result.tree))
      throw ConfigError(fmt::format("{}: {}() returns nothing that is understood", file_, name));
    result.initial = interpreter_.to_json(value, true);
    result.classes = interpreter_.classes_of(value);
    for (const auto& [field, each] : value.object->fields)
      if (auto names = interpreter_.classes_of(each); !names.empty())
        result.field_classes[field] = std::move(names);
    result.notes = interpreter_.take_notes();
    for (const Statement& statement : module_.body)
      if (statement.kind == StatementKind::Import)
        for (const ImportedName& each : statement.imports)
          if (!each.name.empty()) result.imports[each.bound] = each.module;
    return result;
  }

 private:
  void require_parameters(const std::string& name, const Statement& function) const {
    std::vector<std::string> names;
    bool takes_any = false;
    for (const Parameter& parameter : function.parameters) {
      if (parameter.kind == ' ') names.push_back(parameter.name);
      takes_any = takes_any || parameter.kind == '2';
    }
    for (const auto& [given, value] : options_.arguments)
      if (!takes_any && std::ranges::find(names, given) == names.end())
        throw ConfigError(fmt::format(
            "{}: {}(): {}", file_, name,
            names.empty() ? fmt::format("has no parameter '{}': it has none", given)
                          : unknown_name_message("parameter", given, std::move(names))));
  }

  /// Of the functions that no other calls, the one that returns a call: a configuration. Each is
  /// followed without its imports, by itself.
  std::string only_function() {
    std::map<std::string, std::set<std::string>> calls;
    for (const auto& [name, definition] : functions_) collect_names(definition->body, calls[name]);
    std::vector<std::string> roots;
    std::vector<std::string> all;
    Interpreter alone((ReadFile()));
    Module& module = alone.load(file_, module_.text);
    const auto gives_call = [&](const std::string& name) {
      return is_object(alone.returned_by(module, name), ObjectKind::Instance);
    };
    for (const auto& [name, definition] : functions_) {
      const bool takes = std::ranges::any_of(definition->parameters, [](const Parameter& each) {
        return !each.initial && each.kind == ' ';
      });
      if (takes || name.starts_with('_') || !returns(definition->body) || !gives_call(name))
        continue;
      all.push_back(name);
      const bool is_called = std::ranges::any_of(calls, [&, called = name](const auto& other) {
        return other.first != called && other.second.contains(called);
      });
      if (!is_called) roots.push_back(name);
    }
    if (roots.size() == 1 && (all.size() == 1 || !is_registry())) return roots[0];
    if (all.empty())
      throw ConfigError(fmt::format("{}: no function returns a configuration", file_));
    throw ConfigError(
        fmt::format("{}: {} functions return configurations: {}; name one as {}:{}, for example "
                    "meshplan import {}:{}",
                    file_, all.size(), fmt::join(all, ", "), file_, all[0], file_, all[0]));
  }

  /// A file of configurations to choose from, some of which start from others.
  bool is_registry() const { return file_.ends_with("config_registry.py"); }

  const std::string& file_;
  const ReadingOptions& options_;
  Interpreter interpreter_;
  Module& module_;
  std::map<std::string, const Statement*> functions_;
};

}  // namespace

Configuration read_configuration(std::string_view text, const std::string& file,
                                 const std::string& function, const ReadFile& read_file,
                                 const ReadingOptions& options) {
  return Reader(text, file, read_file, options).run(function);
}

}  // namespace meshplan::planner::python
