#include "shell/expand.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "shell/arithmetic.hpp"
#include "shell/tokens.hpp"

namespace meshplan::planner::shell {
namespace {

constexpr std::string_view kSplits = " \t\n";

Value unknown_value(std::string_view written, std::string_view why) {
  return {std::string(written), {printable_line(why)}};
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

}  // namespace

/// Collects fields: `split` begins a new one where a shell would.
struct Expander::Sink {
  Budget& budget;
  std::vector<Value> fields = {};
  Value current = {};
  bool splits = true;
  bool has_current = false;  // "" is a field, too

  void add(const Value& value) {
    budget.take_text(value.text.size());
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
      const std::string field = value.text.substr(begin, at - begin);
      const bool known = value.known() || !has_unknown;
      add(Value{field, known ? std::vector<std::string>{} : value.unknown});
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
  Sink sink{budget_};
  expand(word, sink, false);
  sink.split();
  return std::move(sink.fields);
}

Value Expander::text(std::string_view word) {
  Sink sink{budget_};
  sink.splits = false;
  expand(word, sink, false);
  return std::move(sink.current);
}

const Variable* Expander::find(std::string_view name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? nullptr : &found->second;
}

std::int64_t Expander::arithmetic(std::string_view expression) {
  const Level level(budget_);
  Sink sink{budget_};
  expand(expression, sink, true);
  if (!sink.current.known()) throw UnknownOperand{sink.current.unknown.front()};
  return arithmetic_value(sink.current.text, [&](const std::string& name) -> std::int64_t {
    const Variable* variable = find(name);
    if (variable == nullptr || variable->items.empty()) throw UnknownOperand{name + " is not set"};
    const Value& value = variable->items.front();
    if (!value.known()) throw UnknownOperand{value.unknown.front()};
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
    } else if (c == '`') {
      sink.add(unknown_value(part, fmt::format("{} is a command's output", part)));
    } else if (part.starts_with("$(")) {
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
  sink.add(unknown_value(written, name + " is not set"));
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
  if (name == "@" || name == "*") return;  // a script is read as if it got no arguments
  if (name == "#") return sink.add("0");
  unset(std::string(name), std::string(written), sink, quoted);
}

void Expander::substitution(std::string_view text, Sink& sink, bool quoted) {
  const bool is_arithmetic = text.starts_with("$((") && text.ends_with("))");
  if (!is_arithmetic)
    return sink.add(unknown_value(text, fmt::format("{} is a command's output", text)));
  try {
    sink.add(Value{std::to_string(arithmetic(text.substr(3, text.size() - 5))), {}}, quoted);
  } catch (const UnknownOperand& operand) {
    sink.add(unknown_value(text, operand.why));
  }
}

void Expander::braces(std::string_view inner, Sink& sink, bool quoted) {
  const Level level(budget_);
  const std::string written = fmt::format("${{{}}}", inner);
  if (inner.starts_with('#') && inner.size() > 1) {  // a length, or how many items
    std::string_view name = leading_name(inner.substr(1));
    const Variable* variable = find(name);
    const bool counts = inner.ends_with("[@]") || inner.ends_with("[*]");
    if (variable == nullptr || name.empty())
      return sink.add(unknown_value(written, fmt::format("{} is not set", inner.substr(1))));
    const std::size_t size = counts                    ? variable->items.size()
                             : variable->items.empty() ? 0
                                                       : variable->items.front().text.size();
    return sink.add(std::to_string(size));
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
    sink.add(unknown_value(written, operand.why));
  }
}

/// ${X:-word} and its like.
void Expander::modified(std::string_view name, std::string_view rest, std::string_view written,
                        Sink& sink, bool quoted) {
  const bool also_empty = rest.front() == ':';
  const std::string_view action = rest.substr(also_empty ? 1 : 0);
  const char kind = action.empty() ? '\0' : action.front();
  if (kind != '-' && kind != '=' && kind != '+' && kind != '?')
    return sink.add(unknown_value(written, fmt::format("{} is not read here", written)));
  const Variable* variable = find(name);
  const bool is_set = variable != nullptr && !variable->items.empty() &&
                      !(also_empty && variable->items.front().text.empty());
  const std::string_view word = action.substr(1);
  if (kind == '+') {
    if (is_set) expand(word, sink, quoted);
    return;
  }
  if (is_set) return sink.add(variable->items.front(), quoted);
  if (kind == '?') return unset(std::string(name), std::string(written), sink, quoted);
  if (kind == '=') {
    Variable assigned{false, {text(word)}};
    variables_.insert_or_assign(std::string(name), std::move(assigned));
  }
  expand(word, sink, quoted);
}

}  // namespace meshplan::planner::shell
