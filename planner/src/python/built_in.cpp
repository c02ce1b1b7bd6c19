// Functions that Python brings along, as far as configurations use them.
#include <algorithm>
#include <array>
#include <cmath>

#include "python/arithmetic.hpp"
#include "python/interpreter.hpp"

namespace meshplan::planner::python {
namespace {

std::optional<std::vector<Value>> range_of(const std::vector<Value>& given, std::size_t most) {
  std::int64_t begin = 0;
  std::int64_t step = 1;
  for (const Value& each : given)
    if (!each.is(ValueKind::Whole)) return std::nullopt;
  if (given.empty() || given.size() > 3) return std::nullopt;
  const std::int64_t end = given[given.size() == 1 ? 0 : 1].whole;
  if (given.size() > 1) begin = given[0].whole;
  if (given.size() > 2) step = given[2].whole;
  if (step == 0) return std::nullopt;
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (items.size() > most) return std::nullopt;
    items.push_back(whole(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return items;
}

}  // namespace

Value Interpreter::extreme(bool least, const std::vector<Value>& values) const {
  const Value* best = nullptr;
  for (const Value& each : values) {
    if (!each.is_number()) return unknown("", "");
    if (best == nullptr ||
        (least ? each.number() < best->number() : each.number() > best->number()))
      best = &each;
  }
  return best == nullptr ? unknown("", "") : *best;
}

Value Interpreter::cast(const std::string& name, const Value& value, const Node& node,
                        Frame& frame) {
  if (name == "str" && value.is(ValueKind::Text)) return value;
  if (name == "float" && value.is_number()) return real(value.number());
  if (name == "int" && value.is(ValueKind::Whole)) return value;
  if (name == "int" && value.is(ValueKind::Real) && std::abs(value.real) < 9e15)
    return whole(static_cast<std::int64_t>(value.real));
  if (name == "bool")
    if (const auto holds = truth(value)) return boolean(*holds);
  return unknown_at(node, frame);
}

/// copy, deepcopy, dataclasses.replace and the like.
Value Interpreter::copying(const std::string& name, Arguments& arguments, const Node& node,
                           bool& found) {
  const std::vector<Value>& given = arguments.positional;
  const bool one = given.size() == 1;
  found = one;
  if (!one) return {};
  if (name == "copy.deepcopy") return copied(given[0], 0);
  if (name == "copy.copy") return copied(given[0], kDeepestCopy);
  if (name == "dataclasses.replace" && is_object(given[0], ObjectKind::Instance)) {
    initialize(*given[0].object);
    Value copy = copied(given[0], kDeepestCopy);
    for (const auto& [key, value] : arguments.named) copy.object->set(key, value);
    if (!arguments.unpacked.empty()) copy.object->unpacked = arguments.unpacked;
    copy.object->changed = true;
    return copy;
  }
  if (name == "dataclasses.fields" && is_object(given[0], ObjectKind::Instance) &&
      given[0].object->of_class != nullptr && given[0].object->unpacked.empty() &&
      given[0].object->touched.empty()) {
    std::vector<Value> fields;
    for (const auto& [key, value] : all_fields(*given[0].object)) {
      Object& field = made(ObjectKind::Instance, "Field");
      field.set("name", text(key));
      fields.push_back(reference(&field));
    }
    return made_list(std::move(fields));
  }
  if (name == "math.sqrt" && given[0].is_number() && given[0].number() >= 0)
    return real(std::sqrt(given[0].number()));
  if (name == "math.ceil" && given[0].is_number() && std::abs(given[0].number()) < 9e15)
    return whole(static_cast<std::int64_t>(std::ceil(given[0].number())));
  static_cast<void>(node);
  found = false;
  return {};
}

Value Interpreter::built_in(const std::string& name, Arguments& arguments, const Node& node,
                            Frame& frame, bool& found) {
  const std::vector<Value>& given = arguments.positional;
  found = true;
  if (name == "dict" && arguments.unpacked.empty() && given.size() <= 1) {
    Object& dict = made(ObjectKind::Dict);
    if (given.size() == 1 && !is_object(given[0], ObjectKind::Dict)) return unknown_at(node, frame);
    if (given.size() == 1) dict.fields = given[0].object->fields;
    for (const auto& [key, value] : arguments.named) dict.set(key, value);
    step(dict.fields.size());
    return reference(&dict);
  }
  if (name == "functools.partial" && !given.empty() && is_object(given[0], ObjectKind::Function) &&
      arguments.unpacked.empty()) {
    Object& partial = made(ObjectKind::Function);
    partial = *given[0].object;
    partial.items.insert(partial.items.end(), given.begin() + 1, given.end());
    for (const auto& [key, value] : arguments.named) partial.set(key, value);
    return reference(&partial);
  }
  if (name == "typing.cast" && given.size() == 2) return given[1];
  if (name == "getattr" && given.size() >= 2 && given[1].is(ValueKind::Text)) {
    Value result = attribute(given[0], given[1].text);
    const bool certain =
        is_object(given[0], ObjectKind::Instance) && given[0].object->of_class != nullptr;
    if (result.is(ValueKind::Unknown) && given.size() == 3 && certain && result.text.empty())
      return given[2];
    return result.is(ValueKind::Unknown) ? unknown_at(node, frame) : result;
  }
  if (name == "hasattr" && given.size() == 2 && given[1].is(ValueKind::Text)) {
    const auto has = has_attribute(given[0], given[1].text);
    return has ? boolean(*has) : unknown_at(node, frame);
  }
  if (name == "divmod" && given.size() == 2) {
    const auto quotient = computed(given[0], "//", given[1]);
    const auto rest = computed(given[0], "%", given[1]);
    return quotient && rest ? made_list({*quotient, *rest}) : unknown_at(node, frame);
  }
  if (name == "setattr" && given.size() == 3 && given[1].is(ValueKind::Text)) {
    set_attribute(given[0], given[1].text, given[2]);
    return none();
  }
  if (name == "type" && given.size() == 1 && is_object(given[0], ObjectKind::Instance) &&
      given[0].object->of_class != nullptr)
    return reference(given[0].object->of_class);
  if (name == "isinstance" && given.size() == 2) {
    const auto is = is_instance(given[0], given[1]);
    return is ? boolean(*is) : unknown_at(node, frame);
  }
  if (name == "range") {
    auto items = range_of(given, kMostItems);
    return items ? made_list(std::move(*items)) : unknown_at(node, frame);
  }
  if (given.size() == 1 && (name == "int" || name == "float" || name == "str" || name == "bool"))
    return cast(name, given[0], node, frame);
  if ((name == "min" || name == "max") && !given.empty() && arguments.named.empty()) {
    const auto listed = given.size() == 1 ? items_of(given[0]) : std::nullopt;
    const Value best = extreme(name == "min", listed ? *listed : given);
    return best.is(ValueKind::Unknown) ? unknown_at(node, frame) : best;
  }
  constexpr std::array<std::string_view, 6> kOfLists = {"len",       "list", "tuple",
                                                        "enumerate", "sum",  "reversed"};
  if (std::ranges::find(kOfLists, name) != kOfLists.end()) {
    auto items = given.size() == 1 && arguments.named.empty() ? items_of(given[0]) : std::nullopt;
    if (name != "len" && given.empty() && arguments.named.empty()) return made_list({});
    if (!items) return unknown_at(node, frame);
    if (name == "len") return whole(static_cast<std::int64_t>(items->size()));
    if (name == "reversed") std::ranges::reverse(*items);
    if (name == "enumerate")
      for (std::size_t i = 0; i < items->size(); ++i)
        (*items)[i] = made_list({whole(static_cast<std::int64_t>(i)), (*items)[i]});
    if (name != "sum") return made_list(std::move(*items));
    Value total = whole(0);
    for (const Value& item : *items) {
      const auto next = computed(total, "+", item);
      if (!next) return unknown_at(node, frame);
      total = *next;
    }
    return total;
  }
  return copying(name, arguments, node, found);
}

}  // namespace meshplan::planner::python
