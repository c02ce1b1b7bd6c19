// Values of expressions.
#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "python/arithmetic.hpp"
#include "python/interpreter.hpp"

namespace meshplan::planner::python {
namespace {

constexpr int kDeepestComparison = 8;

std::optional<bool> negated(std::optional<bool> value) {
  return value ? std::optional<bool>(!*value) : std::nullopt;
}

/// Calls may; those that only ask do not.
bool changes_something(const Node& node) {
  if (node.kind == NodeKind::Call) {
    const std::string name = dotted_text(*node.items[0]);
    if (name != "getattr" && name != "hasattr" && name != "isinstance" && name != "len")
      return true;
  }
  return std::ranges::any_of(
      node.items, [](const NodePtr& item) { return item != nullptr && changes_something(*item); });
}

}  // namespace

Value Interpreter::value_of(const Node& node, Frame& frame) {
  step();
  const Depth depth(evaluation_);
  if (evaluation_ > kDeepestEvaluation) too_much("its expressions nest too deep");
  return evaluated(node, frame);
}

Value Interpreter::evaluated(const Node& node, Frame& frame) {
  switch (node.kind) {
    case NodeKind::Literal:
      return node.literal;
    case NodeKind::Name:
      return name_of(node, frame);
    case NodeKind::Attribute:
      return attribute_of(node, frame);
    case NodeKind::Subscript:
      return subscript_of(node, frame);
    case NodeKind::Call:
      return call_of(node, frame);
    case NodeKind::Negate:
      return computed(whole(0), "-", value_of(*node.items[0], frame))
          .value_or(unknown_at(node, frame));
    case NodeKind::Not: {
      const auto value = truth(value_of(*node.items[0], frame));
      return value ? boolean(!*value) : unknown_at(node, frame);
    }
    case NodeKind::Binary:
      return binary_of(node, frame);
    case NodeKind::Compare:
      return comparison_of(node, frame);
    case NodeKind::And:
    case NodeKind::Or:
      return junction_of(node, frame);
    case NodeKind::Conditional: {
      const auto holds = truth(value_of(*node.items[1], frame));
      if (!holds) return unknown_at(node, frame);
      return value_of(*node.items[*holds ? 0 : 2], frame);
    }
    case NodeKind::List:
      return list_of(node, frame);
    case NodeKind::Dict:
      return dict_of(node, frame);
    case NodeKind::Comprehension:
      return comprehension_of(node, frame);
    case NodeKind::Slice:
    case NodeKind::Lambda:
    case NodeKind::Unknown:
      break;
  }
  return unknown_at(node, frame);
}

/// Behind what is not known, something that has no effects may still decide.
Value Interpreter::junction_of(const Node& node, Frame& frame) {
  Value value;
  bool known = true;
  for (const NodePtr& item : node.items) {
    if (!known && changes_something(*item)) break;
    value = value_of(*item, frame);
    const auto holds = truth(value);
    if (holds && *holds == (node.kind == NodeKind::Or)) return known ? value : boolean(*holds);
    known = known && holds.has_value();
  }
  return known ? value : unknown_at(node, frame);
}

Value Interpreter::name_of(const Node& node, Frame& frame) {
  for (Scope* scope = frame.scope; scope != nullptr; scope = scope->outer)
    if (const auto found = scope->names.find(node.text); found != scope->names.end())
      return resolved(found->second);
  return unknown_at(node, frame);
}

Value Interpreter::attribute_of(const Node& node, Frame& frame) {
  const Value base = value_of(*node.items[0], frame);
  Value result = attribute(base, node.text);
  if (!result.is(ValueKind::Unknown)) return result;
  Value missing = unknown_at(node, frame);
  if (!result.place.empty()) missing.place = result.place;
  if (is_object(base, ObjectKind::Instance)) {
    missing.object = base.object;
    missing.field = node.text;
  }
  if (is_object(base, ObjectKind::Instance) && base.object->find(node.text) != nullptr)
    missing.text = result.text;  // what it was set to
  return missing;
}

Value Interpreter::slice_of(const Node& node, const Value& of, const Node& slice, Frame& frame) {
  const auto items = items_of(of);
  std::int64_t ends[2] = {0, items ? static_cast<std::int64_t>(items->size()) : 0};
  if (!items || slice.items.size() > 2) return unknown_at(node, frame);
  const std::int64_t size = ends[1];
  for (std::size_t i = 0; i < slice.items.size(); ++i) {
    if (!slice.items[i]) continue;
    const Value end = value_of(*slice.items[i], frame);
    if (!end.is(ValueKind::Whole)) return unknown_at(node, frame);
    ends[i] = std::clamp<std::int64_t>(
        end.whole < 0 ? std::max(end.whole, -size) + size : end.whole, 0, size);
  }
  ends[1] = std::max(ends[0], ends[1]);
  return made_list({items->begin() + ends[0], items->begin() + ends[1]});
}

Value Interpreter::subscript_of(const Node& node, Frame& frame) {
  const Value of = value_of(*node.items[0], frame);
  const Node& index = *node.items[1];
  if (index.kind == NodeKind::Slice) return slice_of(node, of, index, frame);
  const Value key = value_of(index, frame);
  if (!of.is(ValueKind::Object) || !of.object->touched.empty()) return unknown_at(node, frame);
  const Object& object = *of.object;
  if (object.kind == ObjectKind::List && key.is(ValueKind::Whole)) {
    const auto size = static_cast<std::int64_t>(object.items.size());
    const std::int64_t at = key.whole < 0 ? key.whole + size : key.whole;
    if (key.whole >= -size && at < size) return object.items[static_cast<std::size_t>(at)];
  }
  if (const auto text = key_text(key); object.kind == ObjectKind::Dict && text) {
    step(object.fields.size());
    if (const Value* found = of.object->find(*text); found != nullptr) return resolved(*found);
  }
  return unknown_at(node, frame);
}

Value Interpreter::binary_of(const Node& node, Frame& frame) {
  const Value left = value_of(*node.items[0], frame);
  const Value right = value_of(*node.items[1], frame);
  if (auto number = computed(left, node.text, right)) return std::move(*number);
  if (node.text == "+" && left.is(ValueKind::Text) && right.is(ValueKind::Text)) {
    step((left.text.size() + right.text.size()) / 64);
    if (left.text.size() + right.text.size() < kMostItems) return text(left.text + right.text);
  }
  if (node.text == "+" && is_object(left, ObjectKind::List) && is_object(right, ObjectKind::List)) {
    auto items = items_of(left);
    const auto more = items_of(right);
    if (items && more) {
      items->insert(items->end(), more->begin(), more->end());
      return made_list(std::move(*items));
    }
  }
  if (node.text == "*" && is_object(left, ObjectKind::List) && right.is(ValueKind::Whole)) {
    const auto items = items_of(left);
    std::vector<Value> all;
    for (std::int64_t i = 0; items && i < right.whole && all.size() <= kMostItems; ++i) {
      step(items->size() + 1);
      all.insert(all.end(), items->begin(), items->end());
    }
    if (items) return made_list(std::move(all));
  }
  return unknown_at(node, frame);
}

std::optional<bool> Interpreter::truth(const Value& value) const {
  switch (value.kind) {
    case ValueKind::Unknown:
      return std::nullopt;
    case ValueKind::None:
      return false;
    case ValueKind::Bool:
    case ValueKind::Whole:
      return value.whole != 0;
    case ValueKind::Real:
      return value.real != 0;
    case ValueKind::Text:
      return !value.text.empty();
    case ValueKind::Object:
      break;
  }
  const Object& object = *value.object;
  if (object.kind == ObjectKind::Symbol) return std::nullopt;
  if (object.kind != ObjectKind::List && object.kind != ObjectKind::Dict) {
    // A call that is not known may give anything, even None.
    const bool is_config = object.kind != ObjectKind::Instance || object.of_class != nullptr ||
                           object.name.ends_with("Config");
    return is_config ? std::optional<bool>(true) : std::nullopt;
  }
  if (!object.touched.empty() || !object.unpacked.empty()) return std::nullopt;
  return !object.items.empty() || !object.fields.empty();
}

std::optional<bool> Interpreter::equal(const Value& left, const Value& right, int depth) const {
  if (left.is(ValueKind::Unknown) || right.is(ValueKind::Unknown) || depth > kDeepestComparison)
    return std::nullopt;
  const auto is_numeric = [](const Value& v) { return v.is_number() || v.is(ValueKind::Bool); };
  if (is_numeric(left) && is_numeric(right)) {
    if (!left.is(ValueKind::Real) && !right.is(ValueKind::Real)) return left.whole == right.whole;
    const auto number = [](const Value& v) {
      return v.is(ValueKind::Real) ? v.real : static_cast<double>(v.whole);
    };
    return number(left) == number(right);
  }
  if (left.kind != right.kind) {
    const bool may_be_none = left.is(ValueKind::Object) || right.is(ValueKind::Object);
    const Value& object = left.is(ValueKind::Object) ? left : right;
    if (may_be_none && !truth(object)) return std::nullopt;
    return false;
  }
  if (left.is(ValueKind::Text)) return left.text == right.text;
  if (left.is(ValueKind::None)) return true;
  if (left.object == right.object) return true;
  if (left.object->kind == ObjectKind::List && right.object->kind == ObjectKind::List) {
    if (left.object->items.size() != right.object->items.size()) return false;
    if (left.object->items.size() > 64) return std::nullopt;
    for (std::size_t i = 0; i < left.object->items.size(); ++i) {
      const auto same = equal(left.object->items[i], right.object->items[i], depth + 1);
      if (!same || !*same) return same;
    }
    return true;
  }
  return std::nullopt;
}

std::optional<bool> Interpreter::contains(const Value& container, const Value& value) const {
  if (container.is(ValueKind::Text) && value.is(ValueKind::Text))
    return container.text.find(value.text) != std::string::npos;
  if (!container.is(ValueKind::Object) || !container.object->touched.empty()) return std::nullopt;
  Object& object = *container.object;
  if (const auto text = key_text(value);
      object.kind == ObjectKind::Dict && text && object.unpacked.empty())
    return object.find(*text) != nullptr;
  if (object.kind != ObjectKind::List) return std::nullopt;
  bool known = true;
  for (const Value& item : object.items) {
    const auto same = equal(item, value, 0);
    if (same && *same) return true;
    known = known && same.has_value();
  }
  return known ? std::optional<bool>(false) : std::nullopt;
}

Value Interpreter::comparison_of(const Node& node, Frame& frame) {
  const Value left = value_of(*node.items[0], frame);
  const Value right = value_of(*node.items[1], frame);
  const std::string& word = node.text;
  std::optional<bool> result;
  if (is_object(right, ObjectKind::List)) step(right.object->items.size());
  if (word == "==" || word == "is") result = equal(left, right, 0);
  if (word == "!=" || word == "is not") result = negated(equal(left, right, 0));
  if (word == "in") result = contains(right, left);
  if (word == "not in") result = negated(contains(right, left));
  if (left.is_number() && right.is_number()) {
    const bool exact = left.is(ValueKind::Whole) && right.is(ValueKind::Whole);
    const bool less = exact ? left.whole < right.whole : left.number() < right.number();
    const bool more = exact ? left.whole > right.whole : left.number() > right.number();
    if (word == "<") result = less;
    if (word == ">") result = more;
    if (word == "<=") result = !more;
    if (word == ">=") result = !less;
  }
  return result ? boolean(*result) : unknown_at(node, frame);
}

Value Interpreter::list_of(const Node& node, Frame& frame) {
  std::vector<Value> items;
  for (const NodePtr& item : node.items) {
    if (item->kind != NodeKind::List || item->text != "*") {
      items.push_back(value_of(*item, frame));
      continue;
    }
    const auto more = items_of(value_of(*item->items[0], frame));
    if (!more) return unknown_at(node, frame);
    items.insert(items.end(), more->begin(), more->end());
    if (items.size() > kMostItems)
      too_much(fmt::format("a list has more than {} values", kMostItems));
  }
  return made_list(std::move(items));
}

Value Interpreter::dict_of(const Node& node, Frame& frame) {
  Object& dict = made(ObjectKind::Dict);
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const Value value = value_of(*node.arguments[i].value, frame);
    if (node.items[i]) {
      const Value key = value_of(*node.items[i], frame);
      const auto text = key_text(key);
      if (!text) return unknown_at(node, frame);
      dict.set(*text, value);
    } else if (is_object(value, ObjectKind::Dict) && value.object->touched.empty()) {
      for (const auto& [key, field] : value.object->fields) dict.set(key, field);
    } else {
      return unknown_at(node, frame);
    }
    step(dict.fields.size());
    if (dict.fields.size() > kMostItems)
      too_much(fmt::format("a mapping has more than {} values", kMostItems));
  }
  return reference(&dict);
}

Value Interpreter::comprehension_of(const Node& node, Frame& frame) {
  const bool is_dict = node.items.size() == 2;
  Object& into = made(is_dict ? ObjectKind::Dict : ObjectKind::List);
  Frame inner{.scope = &made_scope(frame.scope, frame.scope->module)};
  bool known = true;
  each_of(node, 0, inner, into, known);
  return known ? reference(&into) : unknown_at(node, frame);
}

void Interpreter::each_of(const Node& node, std::size_t clause, Frame& frame, Object& into,
                          bool& known) {
  if (clause == node.clauses.size()) {
    const Value first = value_of(*node.items[0], frame);
    if (into.kind == ObjectKind::List) {
      into.items.push_back(first);
    } else if (const auto text = key_text(first)) {
      step(into.fields.size());
      into.set(*text, value_of(*node.items[1], frame));
    } else {
      known = false;
    }
    if (into.items.size() + into.fields.size() > kMostItems)
      too_much(fmt::format("a list has more than {} values", kMostItems));
    return;
  }
  const Clause& each = node.clauses[clause];
  const auto items = items_of(value_of(*each.iterable, frame));
  if (!items) {
    known = false;
    return;
  }
  for (const Value& item : *items) {
    assign(*each.target, item, frame);
    bool holds = true;
    for (const NodePtr& condition : each.conditions) {
      const auto value = truth(value_of(*condition, frame));
      known = known && value.has_value();
      holds = holds && value.value_or(false);
    }
    if (holds && known) each_of(node, clause + 1, frame, into, known);
    if (!known) return;
  }
}

}  // namespace meshplan::planner::python
