#include "python/interpreter.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"
#include "python/arithmetic.hpp"

namespace meshplan::planner::python {
namespace {

constexpr int kDeepestTouch = 4;

/// Calls that tell somebody something and change nothing.
bool only_tells(std::string_view callee) {
  constexpr std::array<std::string_view, 7> kBegin = {"print", "logger.",  "logging.", "log",
                                                      "warn",  "validate", "check"};
  const std::string_view last = callee.substr(callee.rfind('.') + 1);
  return std::ranges::any_of(kBegin, [&](std::string_view word) {
    return callee.starts_with(word) || last.starts_with(word);
  });
}

bool only_raises(const Block& block) {
  return !block.empty() && block.back().kind == StatementKind::Raise;
}

}  // namespace

Module& Interpreter::load(const std::string& file, std::string text) {
  if (main_file_.empty()) main_file_ = file;
  std::unique_ptr<Module>& module = modules_[file];
  module = std::make_unique<Module>();
  module->file = file;
  module->text = std::move(text);
  module->globals = &made_scope(nullptr, module.get());
  Module& loaded = *module;
  loaded.body = parse_python(loaded.text, file);
  Frame frame{.scope = loaded.globals};
  const int tries = std::exchange(tries_, 0);  // what imports raise is not what the try is for
  run(loaded.body, frame);
  tries_ = tries;
  return loaded;
}

Value Interpreter::returned_by(Module& module, const std::string& name,
                               std::vector<std::pair<std::string, Value>> arguments) {
  Frame frame{.scope = module.globals};
  const Node nowhere;
  const auto found = module.globals->names.find(name);
  if (found == module.globals->names.end()) return unknown(name, module.file);
  return called(resolved(found->second), {.named = std::move(arguments)}, nowhere, frame);
}

const Statement* Interpreter::function_of(Module& module, const std::string& name) {
  const auto found = module.globals->names.find(name);
  if (found == module.globals->names.end()) return nullptr;
  const Value value = resolved(found->second);
  return is_object(value, ObjectKind::Function) ? value.object->definition : nullptr;
}

Interpreter::Flow Interpreter::run(const Block& block, Frame& frame) {
  for (const Statement& statement : block)
    if (const Flow flow = run(statement, frame); flow != Flow::Next) return flow;
  return Flow::Next;
}

Interpreter::Flow Interpreter::run(const Statement& statement, Frame& frame) {
  step();
  switch (statement.kind) {
    case StatementKind::Expression:
      if (statement.value->kind == NodeKind::Call)
        touch(*statement.value, frame);
      else if (statement.value->kind == NodeKind::Unknown)
        note(statement, frame);
      return Flow::Next;
    case StatementKind::Assign:
      assign(statement, frame);
      return Flow::Next;
    case StatementKind::Return:
      frame.returned = statement.value ? value_of(*statement.value, frame) : none();
      return Flow::Return;
    case StatementKind::Raise:  // it does not start, or we misread it: either way not known
      if (tries_ > 0) throw Raised{};
      frame.uncertain = true;
      frame.why = statement.source;
      frame.where = fmt::format("{}:{}", frame.scope->module->file, statement.line);
      return Flow::Return;
    case StatementKind::If:
      return branch(statement, frame);
    case StatementKind::For:
      return loop(statement, frame);
    case StatementKind::Definition:
    case StatementKind::Class: {
      Object& object =
          made(statement.kind == StatementKind::Class ? ObjectKind::Class : ObjectKind::Function,
               statement.text);
      object.definition = &statement;
      object.scope = frame.scope;
      frame.scope->names[statement.text] = reference(&object);
      return Flow::Next;
    }
    case StatementKind::Import:
      import(statement, frame);
      return Flow::Next;
    case StatementKind::Break:
      return Flow::Break;
    case StatementKind::Continue:
      return Flow::Continue;
    case StatementKind::Ignored:
      return Flow::Next;
    case StatementKind::Try:
      return attempt(statement, frame);
    case StatementKind::Finally:
      return run(statement.body, frame);
    case StatementKind::Unknown:
      note(statement, frame);
      forget(statement.body, frame);
      return Flow::Next;
  }
  return Flow::Next;
}

Interpreter::Flow Interpreter::branch(const Statement& statement, Frame& frame) {
  const std::optional<bool> holds = truth(value_of(*statement.value, frame));
  if (holds) return run(*holds ? statement.body : statement.otherwise, frame);
  if (only_raises(statement.body)) return run(statement.otherwise, frame);
  note(statement, frame);
  forget(statement.body, frame);
  forget(statement.otherwise, frame);
  return Flow::Next;
}

Interpreter::Flow Interpreter::attempt(const Statement& statement, Frame& frame) {
  if (statement.text.empty()) return run(statement.body, frame);  // nothing handles what it raises
  try {
    const Depth depth(tries_);
    return run(statement.body, frame);
  } catch (const Raised&) {
  }
  return run(statement.otherwise, frame);
}

Interpreter::Flow Interpreter::loop(const Statement& statement, Frame& frame) {
  const std::optional<std::vector<Value>> items = items_of(value_of(*statement.value, frame));
  if (!items) {
    note(statement, frame);
    assign(*statement.targets[0], unknown_at(*statement.targets[0], frame), frame);
    forget(statement.body, frame);
    return Flow::Next;
  }
  for (const Value& item : *items) {
    step();
    assign(*statement.targets[0], item, frame);
    const Flow flow = run(statement.body, frame);
    if (flow == Flow::Break) break;
    if (flow == Flow::Return) return flow;
  }
  return Flow::Next;
}

void Interpreter::import(const Statement& statement, Frame& frame) {
  for (const ImportedName& each : statement.imports) {
    Object& symbol = made(ObjectKind::Symbol, each.name);
    symbol.module = each.module;
    symbol.importer = frame.scope->module;
    frame.scope->names[each.bound] = reference(&symbol);
  }
}

void Interpreter::note(const Statement& statement, const Frame& frame) {
  constexpr std::size_t kLongest = 60;
  if (frame.scope->module != noted_) return;
  std::string text(statement.source.substr(0, kLongest));
  if (text.size() < statement.source.size()) text += " ...";
  std::string line =
      fmt::format("{}:{}: '{}' is not understood", frame.scope->module->file, statement.line, text);
  if (std::ranges::find(notes_, line) == notes_.end() && notes_.size() < 64)
    notes_.push_back(std::move(line));
}

void Interpreter::assign(const Statement& statement, Frame& frame) {
  Value value = value_of(*statement.value, frame);
  if (!statement.text.empty()) {  // x += y
    const Node& target = *statement.targets[0];
    const Value before = value_of(target, frame);
    const bool joins = statement.text == "+=" && before.is(ValueKind::Object) &&
                       before.object->kind == ObjectKind::List;
    if (const auto more = joins ? items_of(value) : std::nullopt) {
      step(more->size());
      for (const Value& item : *more) before.object->items.push_back(item);
      if (before.object->items.size() > kMostItems)
        too_much(fmt::format("a list has more than {} values", kMostItems));
      before.object->changed = true;
      return;
    }
    Value result = unknown(std::string(statement.source),
                           fmt::format("{}:{}", frame.scope->module->file, statement.line));
    if (before.is_number() && value.is_number())
      result = computed(before, statement.text.substr(0, statement.text.size() - 1), value)
                   .value_or(result);
    value = std::move(result);
  }
  for (const NodePtr& target : statement.targets) assign(*target, value, frame);
}

void Interpreter::assign(const Node& target, const Value& value, Frame& frame) {
  switch (target.kind) {
    case NodeKind::Name:
      frame.scope->names[target.text] = value;
      return;
    case NodeKind::Attribute:
      return set_attribute(value_of(*target.items[0], frame), target.text, value);
    case NodeKind::Subscript:
      return set_item(value_of(*target.items[0], frame), value_of(*target.items[1], frame), value);
    case NodeKind::List: {
      const std::optional<std::vector<Value>> items = items_of(value);
      for (std::size_t i = 0; i < target.items.size(); ++i)
        assign(
            *target.items[i],
            items && items->size() == target.items.size() ? (*items)[i] : unknown_at(target, frame),
            frame);
      return;
    }
    default:
      return;
  }
}

void Interpreter::set_attribute(const Value& of, const std::string& field, Value value) {
  Object* object = of.object;
  if (of.is(ValueKind::Unknown) && object != nullptr) {  // a field that nothing said before
    Value* known = object->find(of.field);
    if (known != nullptr && known->is(ValueKind::Unknown)) return;  // and stays so
    if (known == nullptr || !known->is(ValueKind::Object)) {
      object->set(of.field, reference(&made(ObjectKind::Instance)));
      object->changed = true;
      known = object->find(of.field);
    }
    object = known->object;
  }
  if (object == nullptr || object->kind != ObjectKind::Instance) return;
  object->set(field, std::move(value));
  object->changed = true;
}

void Interpreter::set_item(const Value& of, const Value& key, Value value) {
  if (!of.is(ValueKind::Object)) return;
  Object& object = *of.object;
  object.changed = true;
  if (const auto text = key_text(key); object.kind == ObjectKind::Dict && text) {
    if (object.fields.size() > kMostItems)
      too_much(fmt::format("a mapping has more than {} values", kMostItems));
    step(object.fields.size());
    object.set(*text, std::move(value));
  } else if (object.kind == ObjectKind::List && key.is(ValueKind::Whole) &&
             key.whole >= -static_cast<std::int64_t>(object.items.size()) &&
             key.whole < static_cast<std::int64_t>(object.items.size())) {
    const auto size = static_cast<std::int64_t>(object.items.size());
    object.items[static_cast<std::size_t>(key.whole < 0 ? key.whole + size : key.whole)] =
        std::move(value);
  } else {
    object.touched.push_back(unknown("an assignment to an item that is not known", ""));
  }
}

/// Statements that may have run: what they assign is not known any more.
void Interpreter::forget(const Block& block, Frame& frame) {
  for (const Statement& statement : block) forget(statement, frame);
}

void Interpreter::forget(const Statement& statement, Frame& frame) {
  step();
  const std::string where = fmt::format("{}:{}", frame.scope->module->file, statement.line);
  switch (statement.kind) {
    case StatementKind::Assign:
    case StatementKind::For:
      for (const NodePtr& target : statement.targets)
        assign(*target, unknown(std::string(statement.source), where), frame);
      break;
    case StatementKind::Expression:
      if (statement.value->kind == NodeKind::Call)
        for (const Argument& argument : statement.value->arguments)
          touch(value_of(*argument.value, frame), unknown(std::string(statement.source), where), 0);
      if (statement.value->kind == NodeKind::Call &&
          statement.value->items[0]->kind == NodeKind::Attribute)
        touch(value_of(*statement.value->items[0]->items[0], frame),
              unknown(std::string(statement.source), where), 0);
      break;
    case StatementKind::Return:
      frame.uncertain = true;
      frame.why = statement.source;
      frame.where = where;
      break;
    case StatementKind::Definition:
    case StatementKind::Class:
      frame.scope->names[statement.text] = unknown(statement.text, where);
      return;
    case StatementKind::Import:
      return import(statement, frame);
    default:
      break;
  }
  forget(statement.body, frame);
  forget(statement.otherwise, frame);
}

/// A call for what it does: followed if its function is known, else whatever it was given may have
/// changed.
void Interpreter::touch(const Node& call, Frame& frame) {
  const Value result = value_of(call, frame);
  const std::string dotted = dotted_text(*call.items[0]);
  const std::string callee = dotted.empty() ? call.items[0]->text : dotted;
  const bool followed = !result.is(ValueKind::Object) ||
                        result.object->kind != ObjectKind::Instance ||
                        result.object->of_class != nullptr || result.object->name != callee;
  if (followed || only_tells(callee)) return;
  const Value telling = unknown_at(call, frame);
  bool touched = false;
  for (const Value& argument : result.object->items)
    touched = touched || argument.is(ValueKind::Object);
  for (const Value& argument : result.object->items) touch(argument, telling, 0);
  for (const auto& [name, argument] : result.object->fields) {
    touched = touched || argument.is(ValueKind::Object);
    touch(argument, telling, 0);
  }
  touch(result.object->self, telling, 0);
  if (!touched || frame.scope->module != noted_) return;
  Statement statement{.source = call.source.substr(0, call.source.find('\n')), .line = call.line};
  note(statement, frame);
}

void Interpreter::touch(const Value& value, const Value& call, int depth) {
  if (!value.is(ValueKind::Object) || depth > kDeepestTouch) return;
  step();
  Object& object = *value.object;
  if (object.kind != ObjectKind::Instance && object.kind != ObjectKind::List &&
      object.kind != ObjectKind::Dict)
    return;
  if (object.touched.size() < 16) object.touched.push_back(call);
  object.changed = true;
}

}  // namespace meshplan::planner::python
