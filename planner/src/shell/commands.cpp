// What the commands of a script do to its variables.
#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <iterator>
#include <tuple>

#include "core/error.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "shell/arithmetic.hpp"
#include "shell/reader.hpp"

namespace meshplan::planner::shell {
namespace {

constexpr std::int64_t kMostIndex = 1 << 16;

/// Programs and builtins that start no training.
constexpr std::array kHarmless = {
    "echo", "printf", "mkdir",  "cd",     "trap",  "rm",   "cp",   "mv",    "ls",
    "cat",  "sleep",  "wait",   "ulimit", "shopt", "tee",  "pwd",  "umask", "touch",
    "ln",   "chmod",  "module", "conda",  "pip",   "kill", "date", "local", "pushd",
    "popd", "grep",   "sed",    "awk",    "head",  "tail", "cut",  "tr",    "getopts"};

bool is_declaration(std::string_view name) {
  return name == "export" || name == "declare" || name == "local" || name == "readonly" ||
         name == "typeset";
}

/// Words "--name" of a text, quoted or not.
void add_flags(std::set<std::string>& flags, std::string_view text) {
  constexpr std::size_t kMost = 256;
  for (auto at = text.find("--"); at != std::string_view::npos; at = text.find("--", at)) {
    std::size_t end = at + 2;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
                                 text[end] == '-' || text[end] == '_'))
      ++end;
    if (end > at + 2)
      flags.insert(flags.size() < kMost ? std::string(text.substr(at, end - at)) : "--");
    at = end;
  }
}

/// "bash", "/bin/sh"
bool is_shell(std::string_view word) {
  const std::string_view name = word.substr(word.find_last_of('/') + 1);
  return name == "bash" || name == "sh" || name == "zsh";
}

/// Does it start scripts that stand behind it, or in its here-document?
bool starts_scripts(std::string_view word) {
  const std::string_view name = word.substr(word.find_last_of('/') + 1);
  return is_shell(name) || name == "sbatch" || name == "srun" || name == "mpirun" ||
         name == "mpiexec" || name == "salloc" || name == "qsub";
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
  const std::string written = fmt::format("${{{}}}", name);
  set(name, {false, {Value{written, {{written, name + " is set in a loop", {}, {}}}}}});
}

void ScriptReader::taint_branch(const Assignment& assignment) {
  std::string raw = assignment.word;
  for (std::size_t i = assignment.items_begin; i < assignment.items_end; ++i)
    raw += " " + tokens_->all[i].text;
  budget_.take_text(raw.size());
  const Variable* old = expander_.find(assignment.name);
  const std::string written = fmt::format("${{{}}}", assignment.name);
  Unknown unknown{written, {}, taint_needs_, {}};
  Variable changed{assignment.is_array, {}};
  const bool keeps = assignment.is_array && assignment.appends;
  if (old != nullptr && keeps) changed.items = old->items;
  // What it held before, it may still hold.
  if (old != nullptr && !keeps) {
    for (const Value& item : old->items) {
      raw += " " + item.text;
      for (const Unknown& each : item.unknown) {
        unknown.flags.insert(each.flags.begin(), each.flags.end());
        add_needs(unknown.needs, each.needs);
      }
    }
  }
  add_flags(unknown.flags, raw);
  unknown.why = fmt::format("{} depends on what is not known", assignment.name);
  if (taint_needs_.empty()) unknown.why = assignment.name + " is set in a loop";
  changed.items.push_back({written, {std::move(unknown)}});
  budget_.take_text(changed.items.size() * sizeof(Value));
  set(assignment.name, std::move(changed));
}

void ScriptReader::assign(const Assignment& assignment) {
  if (mode_ != Mode::Run) {
    ++skipped_effects_;
    if (mode_ == Mode::Taint) taint_branch(assignment);
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
  if (!assignment.is_array) note_argument(assignment.name, items.front());
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

/// "MODEL_SIZE=$2" gives the argument a name.
void ScriptReader::note_argument(const std::string& name, const Value& value) {
  if (value.unknown.size() != 1 || value.unknown.front().needs.size() != 1 ||
      value.text != value.unknown.front().written)
    return;
  const std::string& number = *value.unknown.front().needs.begin();
  if (parse_integer(number, 1, static_cast<int>(Arguments::kMost)))
    script_.argument_names.emplace(number, name);
}

Status ScriptReader::simple_command() {
  const int at_line = line();
  Redirected redirected;
  std::vector<Assignment> assignments;
  std::vector<Value> words;
  bool declares = false;
  while (true) {
    Assignment assignment;
    if (token().kind == Token::Kind::Redirect) {
      redirection(&redirected);
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
  return execute(std::move(words), at_line, redirected);
}

void ScriptReader::declare(const std::vector<Value>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    // export "$NAME=$VALUE"
    const std::string_view name = leading_name(words[i].text);
    const std::string& text = words[i].text;
    if (name.empty() || name.size() >= text.size() || text[name.size()] != '=') continue;
    set(std::string(name), {false, {part_of(words[i], text.substr(name.size() + 1))}});
  }
}

Status ScriptReader::execute(std::vector<Value> words, int line, const Redirected& redirected) {
  if (const auto status = builtin(words)) return *status;
  const std::string name = words.front().text;
  if (const auto function = functions_.find(name); function != functions_.end())
    return call(function->second, words);
  if (name == "cat" && words.size() == 1 && !redirected.here.empty())
    written_[redirected.output.substr(redirected.output.find_last_of('/') + 1)] = redirected.here;
  if (std::ranges::find(kHarmless, name) != kHarmless.end()) return Status::Ran;
  start(std::move(words), line, redirected.here);
  return Status::Ran;
}

std::optional<Status> ScriptReader::builtin(const std::vector<Value>& words) {
  const std::string& name = words.front().text;
  if (name == "true" || name == ":") return Status::True;
  if (name == "false") return Status::False;
  if (name == "return") return Status::True;
  if (name == "break") throw Break{};
  if (name == "continue") throw Continue{};
  if (name == "exit") {
    if (branches_ == 0) throw Exit{};
    assume(line(), "'exit' in a branch is passed over: what it checks is taken to hold");
    return Status::True;
  }
  if (name == "source" || name == ".") return source(words), Status::Ran;
  if (name == "set") {
    for (std::size_t i = 1; i < words.size(); ++i)
      if (words[i].text == "--") set_arguments(words, i + 1);
    return Status::True;
  }
  if (name == "shift") return shift(words), Status::True;
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
  return std::nullopt;
}

void ScriptReader::set_arguments(const std::vector<Value>& words, std::size_t first) {
  if (words.size() > first + Arguments::kMost)
    throw ConfigError(fmt::format("it passes more than {} arguments", Arguments::kMost));
  expander_.arguments.given.clear();
  expander_.arguments.shifted = 0;
  for (std::size_t i = first; i < words.size(); ++i)
    expander_.arguments.given.emplace_back(Variable{false, {words[i]}});
}

void ScriptReader::shift(const std::vector<Value>& words) {
  const auto by = words.size() > 1
                      ? parse_integer(words[1].text, 0, static_cast<int>(Arguments::kMost))
                      : std::optional(1);
  if (by) expander_.arguments.shifted += static_cast<std::size_t>(*by);
}

void ScriptReader::start(std::vector<Value> words, int line, const std::string& here) {
  if (words.front().text == "eval") {
    std::string text;
    for (std::size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i].text;
    if (run_text(text, line, {})) return;
  }
  constexpr std::array kPrefixes = {"eval", "exec", "nohup", "time", "command", "sudo"};
  while (!words.empty() && std::ranges::find(kPrefixes, words.front().text) != kPrefixes.end())
    words.erase(words.begin());
  if (words.empty()) return;
  bool in_shell = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    in_shell = in_shell || is_shell(word);
    const bool takes_text = in_shell && word.starts_with('-') && word.ends_with('c');
    if (takes_text && i + 1 < words.size()) {
      const std::vector<Value> before(words.begin(),
                                      words.begin() + static_cast<std::ptrdiff_t>(i));
      if (run_text(words[i + 1].text, line, before)) return;
    }
    if ((i == 0 || starts_scripts(words.front().text)) && run_script(words, i)) return;
  }
  if (!here.empty() && starts_scripts(words.front().text) && run_text(here, line, words)) return;
  std::vector<Value> all = launcher_;
  budget_.take_text(all.size() * sizeof(Value));
  std::ranges::move(words, std::back_inserter(all));
  script_.commands.push_back({std::move(all), file_, line});
}

bool ScriptReader::run_text(const std::string& text, int line, std::vector<Value> launcher) {
  const Level level(budget_);
  budget_.take_text(text.size());
  try {
    texts_.push_back(tokens_of(text));
  } catch (const ConfigError&) {
    return false;  // no script: a program's own words
  }
  std::ranges::copy(texts_.back().directives, std::back_inserter(script_.directives));
  const auto before = std::tuple(tokens_, at_, line_of_text_);
  const int depth = parsing_depth_;
  const std::size_t commands = script_.commands.size();
  std::vector<Value> outer = launcher_;
  std::ranges::move(launcher, std::back_inserter(launcher_));
  tokens_ = &texts_.back();
  at_ = 0;
  line_of_text_ = line;
  ++branches_;  // an exit there is the inner shell's
  bool is_script = true;
  try {
    list();
    is_script = token().kind == Token::Kind::End;
  } catch (const ConfigError&) {
    is_script = false;
  }
  --branches_;
  parsing_depth_ = depth;
  launcher_ = std::move(outer);
  std::tie(tokens_, at_, line_of_text_) = before;
  if (!is_script) script_.commands.resize(commands);
  return is_script;
}

bool ScriptReader::run_script(const std::vector<Value>& words, std::size_t at) {
  const std::string& word = words[at].text;
  if (!word.ends_with(".sh") && !word.ends_with(".sbatch") && !word.ends_with(".slurm"))
    return false;
  const std::string base = word.substr(word.find_last_of('/') + 1);
  if (const auto made = written_.find(base); made != written_.end())
    return run_text(made->second, line(),
                    {words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at)});
  std::string name;
  const std::string* text = file_of(words[at], name);
  if (text == nullptr || name == file_) return false;
  const std::size_t commands = script_.commands.size();
  std::vector<Value> outer_launcher = launcher_;
  std::copy(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at),
            std::back_inserter(launcher_));
  Arguments outer = std::exchange(expander_.arguments, {});
  expander_.arguments.name = name;
  set_arguments(words, at + 1);
  expander_.arguments.of_function = true;
  const int branches = branches_++;
  file(name, *text);
  branches_ = branches;
  expander_.arguments = std::move(outer);
  launcher_ = std::move(outer_launcher);
  return script_.commands.size() > commands;
}

const std::string* ScriptReader::file_of(const Value& path, std::string& name) {
  // Behind the last part that is not known the path goes on from the script's folder.
  std::string rest = path.text;
  for (const Unknown& each : path.unknown)
    if (const auto at = rest.rfind(each.written); at != std::string::npos)
      rest = rest.substr(at + each.written.size());
  const bool beside = !path.known();
  while (beside && rest.starts_with('/')) rest.erase(0, 1);
  while (rest.starts_with("./")) rest.erase(0, 2);
  const auto slash = main_.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "" : main_.substr(0, slash + 1);
  for (const std::string& candidate : {rest, folder + rest}) {
    name = candidate;
    if (const auto found = files_.find(candidate); found != files_.end()) return &found->second;
    if (const auto found = opened_.find(candidate); found != opened_.end()) return &found->second;
    constexpr std::size_t kMostOpened = 64;
    if (!open_ || opened_.size() >= kMostOpened || candidate.starts_with('/')) continue;
    if (auto text = open_(candidate))
      return &opened_.emplace(candidate, std::move(*text)).first->second;
  }
  const std::string base = rest.substr(rest.find_last_of('/') + 1);
  for (const auto& [each, text] : files_) {
    const std::string other = each.substr(each.find_last_of('/') + 1);
    if (other == base && each != file_) {
      name = each;
      return &text;
    }
  }
  return nullptr;
}

void ScriptReader::source(const std::vector<Value>& words) {
  if (words.size() < 2) return;
  std::string name;
  if (const std::string* text = file_of(words[1], name)) return file(name, *text);
  for (const Unknown& each : words[1].unknown) add_needs(script_.file_needs, each.needs);
  assume(line(), fmt::format("{} is not read: what it sets is not known", words[1].text));
}

}  // namespace meshplan::planner::shell
