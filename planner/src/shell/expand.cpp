#include "shell/expand.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "shell/arithmetic.hpp"
#include "shell/outputs.hpp"
#include "shell/tokens.hpp"

namespace meshplan::planner::shell {
namespace {

constexpr std::string_view kSplits = " \t\n";

Value unknown_value(std::string_view written, std::string_view why,
                    std::set<std::string> needs = {}) {
  return {std::string(written),
          {{std::string(written), printable_line(why), std::move(needs), {}}}};
}

bool is_number(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

/// "$1", "$@", "$?": one character behind the dollar.
bool is_special_parameter(char c) {
  return (c >= '0' && c <= '9') || c == '@' || c == '*' || c == '#' || c == '?' || c == '$' ||
         c == '!' || c == '-';
}

/// One past the field that begins there: blanks inside of what is not known, as "$(date +%s)", are
/// its own. @param has_unknown  does the field hold such a part?
std::size_t end_of_field(const std::string& text, std::size_t begin, bool& has_unknown) {
  std::size_t at = begin;
  while (at < text.size() && kSplits.find(text[at]) == std::string_view::npos) {
    const bool opens = text[at] == '$' || text[at] == '`';
    has_unknown = has_unknown || opens;
    at = opens ? end_of_opened(text, at) : at + 1;
  }
  return at;
}

/// All that a text needs, as one.
Unknown all_of(const Value& value) {
  Unknown all = value.unknown.front();
  for (const Unknown& each : value.unknown) add_needs(all.needs, each.needs);
  return all;
}

}  // namespace

/// Collects fields: `split` begins a new one where a shell would.
struct Expander::Sink {
  Budget& budget;
  std::set<std::string>* needs_met = nullptr;
  std::vector<Value> fields = {};
  Value current = {};
  bool splits = true;
  bool has_current = false;  // "" is a field, too

  void add(const Value& value) {
    budget.take_text(value.text.size() + value.unknown.size() * sizeof(Unknown));
    if (needs_met != nullptr)
      for (const Unknown& each : value.unknown) add_needs(*needs_met, each.needs);
    current += value;
    has_current = true;
  }
  void add(std::string_view text) { add(Value{std::string(text), {}}); }
  void split() {
    if (has_current) fields.push_back(std::move(current));
    current = {};
    has_current = false;
  }
  /// As outside quotes: blanks separate fields, and nothing is no field.
  void add_unquoted(const Value& value) {
    if (!splits) return add(value);
    for (std::size_t at = 0; at < value.text.size();) {
      const auto begin = value.text.find_first_not_of(kSplits, at);
      if (begin != at) split();
      if (begin == std::string::npos) return;
      bool has_unknown = false;
      at = end_of_field(value.text, begin, has_unknown);
      std::string field = value.text.substr(begin, at - begin);
      add(has_unknown ? part_of(value, std::move(field)) : Value{std::move(field), {}});
    }
  }
  void add(const Value& value, bool quoted) { quoted ? add(value) : add_unquoted(value); }
  void next_item() {
    if (splits)
      split();
    else
      add(" ");
  }
};

std::vector<Value> Expander::fields(std::string_view word) {
  Sink sink{budget_, &needs_met_};
  expand(word, sink, false);
  sink.split();
  return std::move(sink.fields);
}

Value Expander::text(std::string_view word) {
  Sink sink{budget_, &needs_met_};
  sink.splits = false;
  expand(word, sink, false);
  return std::move(sink.current);
}

Value Expander::here_document(std::string_view text) {
  // Double quotes are characters there.
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) escaped += '\\';
    escaped += text[i];
  }
  Sink sink{budget_, &needs_met_};
  sink.splits = false;
  expand(escaped, sink, true);
  return std::move(sink.current);
}

void Expander::note_choice(const Value& value, const std::string& choice) {
  constexpr std::size_t kMost = 16;
  if (value.unknown.size() != 1 || value.text != value.unknown.front().written) return;
  const std::set<std::string>& needs = value.unknown.front().needs;
  if (needs.size() != 1 || choice.empty() || choice.find_first_of("*?$`") != std::string::npos)
    return;
  std::vector<std::string>& known = choices[*needs.begin()];
  if (known.size() < kMost && std::ranges::find(known, choice) == known.end())
    known.push_back(choice);
}

const Variable* Expander::find(std::string_view name) const {
  if (is_number(name)) {
    const auto number = parse_integer(name, 1, static_cast<int>(Arguments::kMost));
    const std::size_t index = number ? static_cast<std::size_t>(*number) + arguments.shifted : 0;
    if (index == 0 || index > arguments.given.size()) return nullptr;
    const std::optional<Variable>& given = arguments.given[index - 1];
    return given ? &*given : nullptr;
  }
  const auto found = variables_.find(name);
  return found == variables_.end() ? nullptr : &found->second;
}

std::int64_t Expander::arithmetic(std::string_view expression) {
  const Level level(budget_);
  Sink sink{budget_, &needs_met_};
  expand(expression, sink, true);
  if (!sink.current.known()) throw UnknownOperand{all_of(sink.current)};
  return arithmetic_value(sink.current.text, [&](const std::string& name) -> std::int64_t {
    const Variable* variable = find(name);
    if (variable == nullptr || variable->items.empty()) {
      needs_met_.insert(name);
      throw UnknownOperand{{name, name + " is not set", {name}, {}}};
    }
    const Value& value = variable->items.front();
    if (!value.known()) throw UnknownOperand{all_of(value)};
    // A variable may hold an expression in turn.
    return arithmetic(value.text);
  });
}

void Expander::expand(std::string_view word, Sink& sink, bool in_quotes) {
  const Level level(budget_);
  for (std::size_t at = 0; at < word.size();) {
    budget_.take_step();
    const char c = word[at];
    const std::size_t end = in_quotes && c == '\'' ? at + 1 : end_of_opened(word, at);
    const std::string_view part = word.substr(at, end - at);
    at = end;
    if (c == '\\') {
      const char escaped = part.size() > 1 ? part[1] : '\\';
      const bool keeps = in_quotes && escaped != '"' && escaped != '$' && escaped != '\\' &&
                         escaped != '`' && escaped != '\n';
      if (escaped != '\n') sink.add(keeps ? part : std::string_view(&escaped, 1));
    } else if (c == '\'' && !in_quotes) {
      sink.add(part.substr(1, part.size() - 2));
    } else if (c == '"') {
      const bool was_there = sink.has_current;
      const std::size_t fields_before = sink.fields.size();
      const std::string_view inner = part.substr(1, part.size() - 2);
      expand(inner, sink, true);
      // "" is an empty field, "${EMPTY[@]}" none.
      if (!was_there && !sink.has_current && sink.fields.size() == fields_before &&
          inner.find("[@]") == std::string_view::npos && inner != "$@")
        sink.add("");
    } else if (c == '`' || part.starts_with("$(")) {
      substitution(part, sink, in_quotes);
    } else if (part.starts_with("${")) {
      braces(part.substr(2, part.size() - 3), sink, in_quotes);
    } else if (part.starts_with("$'")) {
      sink.add(part.substr(2, part.size() - 3));
    } else if (c == '$' && at < word.size() && is_special_parameter(word[at])) {
      parameter(word.substr(at, 1), word.substr(at - 1, 2), sink, in_quotes);
      ++at;
    } else if (c == '$' && !leading_name(word.substr(at)).empty()) {
      const std::string_view name = leading_name(word.substr(at));
      parameter(name, word.substr(at - 1, name.size() + 1), sink, in_quotes);
      at += name.size();
    } else {
      // Plain characters up to the next that means something.
      const auto next = std::min(word.find_first_of("\\'\"`$", at), word.size());
      sink.add(word.substr(at - 1, next - at + 1));
      at = next;
    }
  }
}

void Expander::unset(const std::string& name, const std::string& written, Sink& sink, bool quoted) {
  if (empty_if_unset_) {
    taken_as_empty_.push_back(name);
    if (quoted) sink.add("");
    return;
  }
  sink.add(unknown_parameter(name, written));
}

Value Expander::unknown_parameter(std::string_view name, std::string_view written) const {
  std::string needed(name);
  if (const auto number = is_number(name) ? parse_integer(name, 0, 1 << 20) : std::nullopt) {
    needed = std::to_string(static_cast<std::size_t>(*number) + arguments.shifted);
  }
  return unknown_value(written, needed + " is not set", {needed});
}

void Expander::items(const Variable& variable, bool joined, Sink& sink, bool quoted) {
  if (joined && quoted) {
    for (std::size_t i = 0; i < variable.items.size(); ++i) {
      if (i > 0) sink.add(" ");
      sink.add(variable.items[i]);
    }
    return;
  }
  for (std::size_t i = 0; i < variable.items.size(); ++i) {
    if (i > 0) sink.next_item();
    sink.add(variable.items[i], quoted);
  }
}

void Expander::parameter(std::string_view name, std::string_view written, Sink& sink, bool quoted) {
  const Variable* variable = find(name);
  if (variable != nullptr) {
    if (!variable->items.empty())
      sink.add(variable->items.front(), quoted);
    else if (quoted)
      sink.add("");
    return;
  }
  if (!special(name, written, sink, quoted))
    unset(std::string(name), std::string(written), sink, quoted);
}

std::size_t Arguments::count() const {
  std::size_t count = 0;
  while (shifted + count < given.size() && given[shifted + count]) ++count;
  return count;
}

void Expander::ask_for_argument(std::string_view name) {
  const auto number = parse_integer(name, 1, static_cast<int>(Arguments::kMost));
  if (number && !arguments.of_function)
    last_argument = std::max(last_argument, *number + static_cast<int>(arguments.shifted));
}

void Expander::all_arguments(bool joined, Sink& sink, bool quoted) {
  Variable all{true, {}};
  const std::size_t count = arguments.count();
  for (std::size_t i = arguments.shifted; i < arguments.shifted + count; ++i) {
    const Variable& each = *arguments.given[i];
    all.items.insert(all.items.end(), each.items.begin(), each.items.end());
  }
  items(all, joined, sink, quoted);
}

bool Expander::special(std::string_view name, std::string_view written, Sink& sink, bool quoted) {
  if (name == "@" || name == "*") {
    all_arguments(name == "*", sink, quoted);
    return true;
  }
  if (name == "#") {
    sink.add(std::to_string(arguments.count()));
    return true;
  }
  if (name == "0") {
    sink.add(arguments.name);
    return true;
  }
  if (!is_number(name)) return false;
  if (arguments.of_function) {
    if (quoted) sink.add("");
    return true;
  }
  ask_for_argument(name);
  unset(std::string(name), std::string(written), sink, quoted);
  return true;
}

void Expander::substitution(std::string_view text, Sink& sink, bool quoted) {
  const bool is_arithmetic = text.starts_with("$((") && text.ends_with("))");
  if (!is_arithmetic) {
    const bool ticks = text.starts_with('`');
    const Level level(budget_);
    return sink.add(
        command_output(text.substr(ticks ? 1 : 2, text.size() - (ticks ? 2 : 3)), text, *this),
        quoted);
  }
  try {
    sink.add(Value{std::to_string(arithmetic(text.substr(3, text.size() - 5))), {}}, quoted);
  } catch (const UnknownOperand& operand) {
    Unknown unknown = operand.unknown;
    unknown.written = text;
    sink.add(Value{std::string(text), {std::move(unknown)}});
  }
}

void Expander::length(std::string_view inner, std::string_view written, Sink& sink) {
  std::string_view name = leading_name(inner.substr(1));
  const Variable* variable = find(name);
  const bool counts = inner.ends_with("[@]") || inner.ends_with("[*]");
  if (variable == nullptr || name.empty()) return sink.add(unknown_parameter(name, written));
  const bool is_known = counts || variable->items.empty() || variable->items.front().known();
  if (!is_known)
    return sink.add(Value{std::string(written),
                          {{std::string(written),
                            variable->items.front().unknown.front().why,
                            all_of(variable->items.front()).needs,
                            {}}}});
  const std::size_t size = counts                    ? variable->items.size()
                           : variable->items.empty() ? 0
                                                     : variable->items.front().text.size();
  sink.add(std::to_string(size));
}

void Expander::braces(std::string_view inner, Sink& sink, bool quoted) {
  const Level level(budget_);
  const std::string written = fmt::format("${{{}}}", inner);
  if (inner.starts_with('#') && inner.size() > 1) return length(inner, written, sink);
  if (inner.starts_with('!') && leading_name(inner.substr(1)).size() + 1 == inner.size()) {
    const Variable* named = find(inner.substr(1));
    if (named == nullptr || named->items.empty() || !named->items.front().known())
      return sink.add(unknown_parameter(inner.substr(1), written));
    return parameter(named->items.front().text, written, sink, quoted);
  }
  std::string_view name = leading_name(inner);
  if (name.empty() && !inner.empty() && is_special_parameter(inner.front())) {
    std::size_t digits = 1;
    while (digits < inner.size() && inner[digits] >= '0' && inner[digits] <= '9') ++digits;
    name = inner.substr(0, digits);
  }
  if (name.empty()) return sink.add(unknown_value(written, written + " is not read here"));
  const std::string_view rest = inner.substr(name.size());
  if (rest.empty()) return parameter(name, written, sink, quoted);
  if (rest.front() == '[') {
    const auto close = rest.find(']');
    if (close == std::string_view::npos)
      return sink.add(unknown_value(written, written + " is not read here"));
    return index(name, rest.substr(1, close - 1), rest.substr(close + 1), written, sink, quoted);
  }
  modified(name, rest, written, sink, quoted);
}

void Expander::index(std::string_view name, std::string_view subscript, std::string_view rest,
                     std::string_view written, Sink& sink, bool quoted) {
  const Variable* variable = find(name);
  const bool all = subscript == "@" || subscript == "*";
  if (!rest.empty() && rest.front() != ':' && rest.front() != '-')
    return sink.add(unknown_value(written, fmt::format("{} is not read here", written)));
  if (variable == nullptr) {
    if (!rest.empty()) return modified(name, rest, written, sink, quoted);
    // An array that was never filled gives no words.
    return all ? void() : unset(std::string(name), std::string(written), sink, quoted);
  }
  if (all) return items(*variable, subscript == "*", sink, quoted);
  try {
    const std::int64_t at = arithmetic(subscript);
    if (at < 0 || static_cast<std::size_t>(at) >= variable->items.size())
      return unset(fmt::format("{}[{}]", name, at), std::string(written), sink, quoted);
    sink.add(variable->items[static_cast<std::size_t>(at)], quoted);
  } catch (const UnknownOperand& operand) {
    sink.add(unknown_value(written, operand.unknown.why, operand.unknown.needs));
  }
}

/// ${X:-word} and its like.
void Expander::modified(std::string_view name, std::string_view rest, std::string_view written,
                        Sink& sink, bool quoted) {
  const bool also_empty = rest.front() == ':';
  const std::string_view action = rest.substr(also_empty ? 1 : 0);
  const char kind = action.empty() ? '\0' : action.front();
  const Variable* variable = find(name);
  if (kind != '-' && kind != '=' && kind != '+' && kind != '?') {
    if (variable == nullptr) return unset(std::string(name), std::string(written), sink, quoted);
    const Value value = variable->items.empty() ? Value{} : variable->items.front();
    if (!value.known())
      return sink.add(unknown_value(written, value.unknown.front().why, all_of(value).needs));
    const Level level(budget_);
    const auto edited = edited_text(value.text, rest, *this);
    if (!edited)
      return sink.add(unknown_value(written, fmt::format("{} is not read here", written)));
    return sink.add(Value{*edited, {}}, quoted);
  }
  const bool is_set = variable != nullptr && !variable->items.empty() &&
                      !(also_empty && variable->items.front().text.empty());
  if (!is_set && is_number(name)) ask_for_argument(name);
  const std::string_view word = action.substr(1);
  if (kind == '+') {
    if (is_set) expand(word, sink, quoted);
    return;
  }
  if (is_set) return sink.add(variable->items.front(), quoted);
  if (kind == '?') return unset(std::string(name), std::string(written), sink, quoted);
  if (kind == '=' && !is_number(name)) {
    Variable assigned{false, {text(word)}};
    variables_.insert_or_assign(std::string(name), std::move(assigned));
  }
  expand(word, sink, quoted);
}

}  // namespace meshplan::planner::shell
