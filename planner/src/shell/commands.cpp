// What the commands of a script do to its variables.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <iterator>

#include "core/error.hpp"
#include "core/line.hpp"
#include "shell/arithmetic.hpp"
#include "shell/reader.hpp"

namespace meshplan::planner::shell {
namespace {

constexpr std::int64_t kMostIndex = 1 << 16;

/// Programs and builtins that start no training.
constexpr std::array kHarmless = {
    "echo", "printf", "mkdir",  "cd",    "set",    "shift", "trap", "rm",    "cp",       "mv",
    "ls",   "cat",    "sleep",  "wait",  "ulimit", "shopt", "tee",  "pwd",   "umask",    "touch",
    "ln",   "chmod",  "module", "conda", "pip",    "kill",  "date", "local", "pushd",    "popd",
    "grep", "sed",    "awk",    "head",  "tail",   "cut",   "tr",   "break", "continue", "getopts"};

bool is_declaration(std::string_view name) {
  return name == "export" || name == "declare" || name == "local" || name == "readonly" ||
         name == "typeset";
}

}  // namespace

bool ScriptReader::read_assignment(Assignment& assignment) {
  if (token().kind != Token::Kind::Word) return false;
  const std::string& text = token().text;
  const std::string_view name = leading_name(text);
  if (name.empty()) return false;
  std::size_t at = name.size();
  Assignment read{.name = std::string(name)};
  if (at < text.size() && text[at] == '[') {
    const auto close = text.find(']', at);
    if (close == std::string::npos) return false;
    read.has_subscript = true;
    read.subscript = text.substr(at + 1, close - at - 1);
    at = close + 1;
  }
  if (at < text.size() && text[at] == '+') {
    read.appends = true;
    ++at;
  }
  if (at >= text.size() || text[at] != '=') return false;
  read.word = text.substr(at + 1);
  ++at_;
  if (read.word.empty() && is_operator("(")) {
    read.is_array = true;
    read.items_begin = ++at_;
    while (!is_operator(")")) {
      if (token().kind == Token::Kind::End)
        throw ConfigError(fmt::format("array {}: expected ')'", read.name));
      ++at_;
    }
    read.items_end = at_++;
  }
  assignment = std::move(read);
  return true;
}

void ScriptReader::set(const std::string& name, Variable variable) {
  if (!script_.variables.contains(name)) script_.order.push_back(name);
  script_.variables.insert_or_assign(name, std::move(variable));
}

void ScriptReader::taint(const std::string& name) {
  if (name.empty()) return;
  set(name, {false, {Value{fmt::format("${{{}}}", name), {name + " is set in a loop"}}}});
}

void ScriptReader::assign(const Assignment& assignment) {
  if (mode_ != Mode::Run) {
    ++skipped_effects_;
    if (mode_ == Mode::Taint) taint(assignment.name);
    return;
  }
  std::vector<Value> items;
  if (assignment.is_array) {
    for (std::size_t i = assignment.items_begin; i < assignment.items_end; ++i) {
      const Token& item = tokens_->all[i];
      if (item.kind != Token::Kind::Word) continue;
      std::ranges::move(expander_.fields(item.text), std::back_inserter(items));
    }
  } else {
    items.push_back(expander_.text(assignment.word));
  }
  const Variable* old = expander_.find(assignment.name);
  if (assignment.has_subscript) {
    std::int64_t index = -1;
    try {
      index = expander_.arithmetic(assignment.subscript);
    } catch (const UnknownOperand&) {
      return taint(assignment.name);
    } catch (const ConfigError&) {  // the key of a map
      return taint(assignment.name);
    }
    if (index < 0 || index > kMostIndex) return taint(assignment.name);
    Variable changed = old == nullptr ? Variable{} : *old;
    changed.is_array = true;
    budget_.take_text(static_cast<std::size_t>(index) * sizeof(Value));
    if (changed.items.size() <= static_cast<std::size_t>(index))
      changed.items.resize(static_cast<std::size_t>(index) + 1);
    changed.items[static_cast<std::size_t>(index)] = std::move(items.front());
    return set(assignment.name, std::move(changed));
  }
  if (!assignment.appends || old == nullptr)
    return set(assignment.name, {assignment.is_array, std::move(items)});
  Variable changed = *old;
  for (const Value& item : changed.items) budget_.take_text(item.text.size());
  if (assignment.is_array) {
    changed.is_array = true;
    std::ranges::move(items, std::back_inserter(changed.items));
  } else if (changed.items.empty()) {
    changed.items = std::move(items);
  } else {
    changed.items.front() += items.front();
  }
  set(assignment.name, std::move(changed));
}

Status ScriptReader::simple_command() {
  const int line = token().line;
  std::vector<Assignment> assignments;
  std::vector<Value> words;
  bool declares = false;
  while (true) {
    Assignment assignment;
    if (token().kind == Token::Kind::Redirect) {
      redirection();
    } else if ((words.empty() || declares) && read_assignment(assignment)) {
      assignments.push_back(std::move(assignment));
    } else if (token().kind == Token::Kind::Word) {
      const std::string text = token().text;
      ++at_;
      if (words.empty() && text == "[") return --at_, bracket_test("]");
      if (words.empty() && is_operator("(")) {
        ++at_;
        if (!is_operator(")"))
          throw ConfigError(fmt::format("'{}(' without ')'", short_line(text)));
        ++at_;
        return function_definition(text);
      }
      if (mode_ == Mode::Run) {
        std::ranges::move(expander_.fields(text), std::back_inserter(words));
      } else {
        words.push_back({text, {}});
      }
      declares = declares || (words.size() == 1 && is_declaration(words.front().text));
    } else {
      break;
    }
  }
  // What stands before a program is set for it alone; that is not told apart.
  for (const Assignment& assignment : assignments) assign(assignment);
  if (words.empty() || declares) {
    if (declares && mode_ == Mode::Run) declare(words);
    if (words.empty() && assignments.empty() && token().kind == Token::Kind::Operator &&
        !is_operator("\n") && !is_operator(";") && !is_operator("&") && !is_operator("|") &&
        !is_operator("&&") && !is_operator("||") && !is_operator(")") && !is_operator(";;"))
      throw ConfigError(fmt::format("unexpected '{}'", short_line(token().text)));
    return Status::True;
  }
  if (mode_ != Mode::Run) {
    const std::string& name = words.front().text;
    if (std::ranges::find(kHarmless, name) == kHarmless.end() && name != "exit") ++skipped_effects_;
    return Status::Unknown;
  }
  return execute(std::move(words), line);
}

void ScriptReader::declare(const std::vector<Value>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    // export "$NAME=$VALUE"
    const std::string_view name = leading_name(words[i].text);
    const std::string& text = words[i].text;
    if (name.empty() || name.size() >= text.size() || text[name.size()] != '=') continue;
    set(std::string(name), {false, {Value{text.substr(name.size() + 1), words[i].unknown}}});
  }
}

Status ScriptReader::execute(std::vector<Value> words, int line) {
  const std::string name = words.front().text;
  if (name == "true" || name == ":") return Status::True;
  if (name == "false") return Status::False;
  if (name == "return") return Status::True;
  if (name == "exit") {
    if (branches_ == 0) throw Exit{};
    assume(line, "'exit' in a branch is passed over: what it checks is taken to hold");
    return Status::True;
  }
  if (name == "source" || name == ".") return source(words), Status::Ran;
  if (name == "unset") {
    for (const Value& word : words) script_.variables.erase(word.text);
    return Status::True;
  }
  if (name == "read" || name == "mapfile" || name == "readarray" || name == "let") {
    for (std::size_t i = 1; i < words.size(); ++i)
      if (const auto target = leading_name(words[i].text); !target.empty())
        taint(std::string(target));
    return Status::Ran;
  }
  if (const auto function = functions_.find(name); function != functions_.end())
    return call(function->second);
  if (std::ranges::find(kHarmless, name) != kHarmless.end()) return Status::Ran;
  if (name == "eval" || name == "exec" || name == "nohup" || name == "time" || name == "command")
    words.erase(words.begin());
  if (!words.empty()) script_.commands.push_back({std::move(words), file_, line});
  return Status::Ran;
}

void ScriptReader::source(const std::vector<Value>& words) {
  if (words.size() < 2) return;
  const std::string& path = words[1].text;
  const std::string base = path.substr(path.find_last_of('/') + 1);
  for (const auto& [name, text] : files_) {
    const std::string other = name.substr(name.find_last_of('/') + 1);
    if (other == base && name != file_) return file(name, text);
  }
  assume(token().line, fmt::format("{} is not read: what it sets is not known", path));
}

}  // namespace meshplan::planner::shell
