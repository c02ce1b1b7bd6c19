#include "shell/reader.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <iterator>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "shell/arithmetic.hpp"

namespace meshplan::planner::shell {
namespace {

constexpr std::array kListEnds = {"then", "else", "elif", "fi", "do", "done", "esac", "}"};

constexpr std::size_t kMostFile = std::size_t{1} << 20;

}  // namespace

ScriptReader::ScriptReader(const std::map<std::string, std::string>& files,
                           const std::map<std::string, std::string>& environment,
                           const OpenFile& open)
    : files_(files), open_(open), expander_(script_.variables, budget_) {
  constexpr int kMostArguments = 1024;
  for (const auto& [name, value] : environment) {
    const Variable variable{false, {Value{value, {}}}};
    const auto number = parse_integer(name, 1, kMostArguments);
    if (!number) {
      script_.variables[name] = variable;
      continue;
    }
    std::vector<std::optional<Variable>>& given = expander_.arguments.given;
    const auto size = static_cast<std::size_t>(*number);
    if (given.size() < size) given.resize(size);
    given[size - 1] = variable;
  }
}

Script ScriptReader::run(const std::string& main) {
  const auto found = files_.find(main);
  require_invariant(found != files_.end(), "the main file is among the files");
  main_ = main;
  expander_.arguments.name = main;
  try {
    file(main, found->second);
  } catch (const Exit&) {
  } catch (const Break&) {  // outside of any loop
  } catch (const Continue&) {
  }
  script_.choices = std::move(expander_.choices);
  script_.last_argument = expander_.last_argument;
  return std::move(script_);
}

void ScriptReader::file(const std::string& name, const std::string& text) {
  if (text.size() > kMostFile)
    throw ConfigError(fmt::format("{}: has {} bytes; scripts of at most {} are read", name,
                                  text.size(), kMostFile));
  const Level level(budget_);
  if (!read_files_.contains(name)) {
    try {
      read_files_[name] = tokens_of(text);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}:{}", name, error.what()));
    }
  }
  const Tokens& tokens = read_files_[name];
  std::ranges::copy(tokens.directives, std::back_inserter(script_.directives));
  const auto before = std::tuple(tokens_, at_, file_, line_of_text_);
  tokens_ = &tokens;
  at_ = 0;
  file_ = name;
  line_of_text_.reset();
  set("BASH_SOURCE", {true, {Value{name, {}}}});
  try {
    while (token().kind != Token::Kind::End) {
      list();
      if (token().kind != Token::Kind::End)
        throw ConfigError(fmt::format("'{}' without its beginning", short_line(token().text)));
    }
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    if (message.starts_with(name + ":")) throw;  // a sourced file has said where
    const bool elsewhere = std::ranges::any_of(
        files_, [&](const auto& each) { return message.starts_with(each.first + ":"); });
    if (elsewhere) throw;
    throw ConfigError(fmt::format("{}:{}: {}", name, line(), message));
  }
  std::tie(tokens_, at_, file_, line_of_text_) = before;
  if (!file_.empty()) set("BASH_SOURCE", {true, {Value{file_, {}}}});
}

void ScriptReader::expect_word(std::string_view text) {
  if (!is_word(text))
    throw ConfigError(fmt::format("expected '{}', got '{}'", text,
                                  token().text == "\n" ? "end of line" : short_line(token().text)));
  ++at_;
}

void ScriptReader::skip_newlines() {
  while (is_operator("\n")) ++at_;
}

bool ScriptReader::ends_list() const {
  if (token().kind == Token::Kind::End || is_operator(")") || is_operator(";;")) return true;
  return token().kind == Token::Kind::Word &&
         std::ranges::find(kListEnds, token().text) != kListEnds.end();
}

Status ScriptReader::list() {
  struct Depth {
    int& depth;
    ~Depth() { --depth; }
  } const depth{parsing_depth_};
  if (++parsing_depth_ > Budget::kDepth) throw ConfigError("it nests deeper than 64 levels");
  Status status = Status::True;
  while (true) {
    while (is_operator("\n") || is_operator(";") || is_operator("&")) ++at_;
    if (ends_list()) return status;
    status = and_or();
  }
}

bool ScriptReader::begins_test() const {
  return is_word("[") || is_word("[[") || is_word("test") || is_operator("((");
}

Status ScriptReader::and_or() {
  std::set<std::string> outer = std::exchange(needs_, {});
  Status status = pipeline();
  while (is_operator("&&") || is_operator("||")) {
    const bool is_and = is_operator("&&");
    const int at_line = line();
    ++at_;
    skip_newlines();
    const bool runs =
        is_and ? status == Status::True || status == Status::Ran : status == Status::False;
    if (runs || mode_ != Mode::Run) {
      ++branches_;
      status = pipeline();
      --branches_;
      continue;
    }
    if (status == Status::Unknown && begins_test()) {  // which changes nothing
      const Status decides = is_and ? Status::False : Status::True;
      if (pipeline() == decides) status = decides;
      continue;
    }
    const int before = skipped_effects_;
    const bool depends = status == Status::Unknown && !needs_.empty();
    const Mode mode = std::exchange(mode_, depends ? Mode::Taint : Mode::Skip);
    const std::set<std::string> needs = std::exchange(taint_needs_, needs_);
    pipeline();
    taint_needs_ = needs;
    mode_ = mode;
    if (status == Status::Unknown && !depends && skipped_effects_ > before)
      assume(at_line, fmt::format("what follows '{}' is left out: its condition is not known",
                                  is_and ? "&&" : "||"));
  }
  add_needs(needs_, outer);
  return status;
}

Status ScriptReader::pipeline() {
  bool negates = false;
  while (is_word("!")) {
    negates = !negates;
    ++at_;
  }
  Status status = command();
  while (is_operator("|")) {
    ++at_;
    if (is_operator("&")) ++at_;
    skip_newlines();
    command();
    status = Status::Ran;
  }
  return negates ? negated(status) : status;
}

Status ScriptReader::command() {
  budget_.take_step();
  if (is_operator("(")) {
    ++at_;
    const Status status = list();
    if (!is_operator(")")) throw ConfigError("expected ')'");
    ++at_;
    return status;
  }
  if (is_operator("((")) return arithmetic_command();
  if (token().kind == Token::Kind::Word) {
    const std::string& word = token().text;
    if (word == "{") {
      ++at_;
      const Status status = list();
      expect_word("}");
      return status;
    }
    if (word == "if") return if_command();
    if (word == "case") return case_command();
    if (word == "while" || word == "until" || word == "for" || word == "select") return loop();
    if (word == "[[") return bracket_test("]]");
    if (word == "function") {
      ++at_;
      const std::string name = token().text;
      ++at_;
      if (is_operator("(")) {
        ++at_;
        if (is_operator(")")) ++at_;
      }
      return function_definition(name);
    }
  }
  return simple_command();
}

bool ScriptReader::list_in(Mode mode, Status* status) {
  const int before = skipped_effects_;
  const Mode outer = std::exchange(mode_, mode_ == Mode::Run ? mode : mode_);
  ++branches_;
  const Status last = list();
  --branches_;
  mode_ = outer;
  if (status != nullptr) *status = last;
  return skipped_effects_ > before;
}

Status ScriptReader::function_definition(const std::string& name) {
  skip_newlines();
  if (!is_word("{") && !is_operator("("))
    throw ConfigError(fmt::format("function {}: expected '{{'", name));
  const Function function{tokens_, file_, at_};
  const Mode mode = std::exchange(mode_, Mode::Skip);
  const int effects = skipped_effects_;
  command();
  skipped_effects_ = effects;
  mode_ = mode;
  if (mode_ == Mode::Run) functions_.insert_or_assign(name, function);
  return Status::True;
}

Status ScriptReader::bracket_test(std::string_view close) {
  const std::size_t begin = ++at_;
  const int at_line = line();
  while (!is_word(close)) {
    if (token().kind == Token::Kind::End || (close == "]" && is_operator("\n")))
      throw ConfigError(fmt::format("expected '{}'", close));
    ++at_;
  }
  const std::span<const Token> tokens(tokens_->all.data() + begin, at_ - begin);
  ++at_;
  if (mode_ != Mode::Run) return Status::Unknown;
  expander_.needs_met();
  const Status status = test_status(tokens, expander_);
  std::set<std::string> needs = expander_.needs_met();
  // "[ $TP -gt 1 ]" says nothing of an empty $TP.
  if (status == Status::Unknown && needs.empty())
    for (const std::string& name : expander_.taken_as_empty()) needs.insert(name);
  note_taken_as_empty(at_line);
  if (status == Status::Unknown) add_needs(needs_, needs);
  return status;
}

Status ScriptReader::arithmetic_command() {
  ++at_;
  const std::string expression = token().text;
  ++at_;
  // (( i++ )) and (( x = 2 )) set; which is not followed.
  const std::string_view name = leading_name(expression);
  const auto equals = expression.find('=');
  const bool sets =
      expression.find("++") != std::string::npos || expression.find("--") != std::string::npos ||
      (equals != std::string::npos && equals > 0 &&
       std::string_view("=!<>").find(expression[equals - 1]) == std::string_view::npos &&
       expression.find("==") == std::string::npos);
  if (mode_ != Mode::Run || sets) {
    if (mode_ != Mode::Skip && sets && !name.empty()) taint(std::string(name));
    return Status::Unknown;
  }
  try {
    return expander_.arithmetic(expression) != 0 ? Status::True : Status::False;
  } catch (const UnknownOperand& operand) {
    add_needs(needs_, operand.unknown.needs);
    return Status::Unknown;
  } catch (const ConfigError&) {
    return Status::Unknown;
  }
}

void ScriptReader::redirection(Redirected* redirected) {
  const Token& operation = token();
  const bool reads = redirected != nullptr && mode_ == Mode::Run;
  if (reads && !operation.here.empty()) {
    budget_.take_text(operation.here.size());
    redirected->here =
        operation.here_is_quoted ? operation.here : expander_.here_document(operation.here).text;
  }
  ++at_;
  if (operation.complete || token().kind != Token::Kind::Word) return;
  if (reads && operation.text.starts_with('>'))
    redirected->output = expander_.text(token().text).text;
  ++at_;
}

void ScriptReader::assume(int line, std::string what) {
  std::string text = fmt::format("{}:{}: {}", file_, line, what);
  if (noted_.insert(text).second) script_.assumptions.push_back(std::move(text));
}

void ScriptReader::note_taken_as_empty(int line) {
  for (const std::string& name : expander_.taken_as_empty())
    assume(line, name + " is not set: taken as empty");
}

}  // namespace meshplan::planner::shell
