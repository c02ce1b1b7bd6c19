#include "shell/reader.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <iterator>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "core/line.hpp"
#include "shell/arithmetic.hpp"

namespace meshplan::planner::shell {
namespace {

constexpr std::array kListEnds = {"then", "else", "elif", "fi", "do", "done", "esac", "}"};

constexpr std::size_t kMostFile = std::size_t{1} << 20;

}  // namespace

ScriptReader::ScriptReader(const std::map<std::string, std::string>& files,
                           const std::map<std::string, std::string>& environment)
    : files_(files), expander_(script_.variables, budget_) {
  for (const auto& [name, value] : environment)
    script_.variables[name] = {false, {Value{value, {}}}};
}

Script ScriptReader::run(const std::string& main) {
  const auto found = files_.find(main);
  require_invariant(found != files_.end(), "the main file is among the files");
  try {
    file(main, found->second);
  } catch (const Exit&) {
  }
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
  const auto before = std::tuple(tokens_, at_, file_);
  tokens_ = &tokens;
  at_ = 0;
  file_ = name;
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
    throw ConfigError(fmt::format("{}:{}: {}", name, token().line, message));
  }
  std::tie(tokens_, at_, file_) = before;
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

Status ScriptReader::and_or() {
  Status status = pipeline();
  while (is_operator("&&") || is_operator("||")) {
    const bool is_and = is_operator("&&");
    const int line = token().line;
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
    const int before = skipped_effects_;
    const Mode mode = std::exchange(mode_, Mode::Skip);
    pipeline();
    mode_ = mode;
    if (status == Status::Unknown && skipped_effects_ > before)
      assume(line, fmt::format("what follows '{}' is left out: its condition is not known",
                               is_and ? "&&" : "||"));
  }
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

Status ScriptReader::if_command() {
  bool taken = false;    // a branch was
  bool unknown = false;  // a condition before was
  bool left_out = false;
  const int line = token().line;
  while (is_word("if") || is_word("elif")) {
    ++at_;
    Status condition = Status::Unknown;
    list_in(taken ? Mode::Skip : Mode::Run, &condition);
    expect_word("then");
    const bool takes = !taken && condition == Status::True;
    const bool effects = list_in(takes ? Mode::Run : Mode::Skip);
    unknown = unknown || (!taken && (condition == Status::Unknown || condition == Status::Ran));
    left_out = left_out || (!takes && unknown && effects);
    taken = taken || takes;
  }
  if (is_word("else")) {
    ++at_;
    list_in(taken ? Mode::Skip : Mode::Run);
  }
  expect_word("fi");
  if (unknown && left_out && mode_ == Mode::Run)
    assume(line, "a branch of this 'if' is left out: its condition is not known");
  return Status::Ran;
}

Status ScriptReader::case_command() {
  ++at_;
  const Value value = mode_ == Mode::Run ? expander_.text(token().text) : Value{};
  ++at_;
  skip_newlines();
  expect_word("in");
  bool taken = false;
  while (true) {
    skip_newlines();
    if (is_word("esac")) break;
    if (token().kind == Token::Kind::End) throw ConfigError("expected 'esac'");
    case_branch(value, taken);
  }
  ++at_;
  return Status::Ran;
}

void ScriptReader::case_branch(const Value& value, bool& taken) {
  const int line = token().line;
  if (is_operator("(")) ++at_;
  bool matches = false;
  while (token().kind == Token::Kind::Word) {
    if (mode_ == Mode::Run && value.known() && !taken)
      matches = matches || matches_pattern(value.text, expander_.text(token().text).text);
    ++at_;
    if (is_operator("|")) ++at_;
  }
  if (!is_operator(")"))
    throw ConfigError(fmt::format("expected ')', got '{}'", short_line(token().text)));
  ++at_;
  const bool effects = list_in(matches ? Mode::Run : Mode::Skip);
  taken = taken || matches;
  if (is_operator(";;")) ++at_;
  if (is_operator("&")) ++at_;  // ;;& looks further, which is not followed
  if (mode_ == Mode::Run && !value.known() && effects)
    assume(line, fmt::format("this branch of 'case' is left out: {}", value.unknown.front()));
}

Status ScriptReader::loop() {
  const bool is_for = is_word("for") || is_word("select");
  std::string variable;
  ++at_;
  if (is_for) {
    if (is_operator("((")) {
      at_ += 2;
    } else {
      variable = token().text;
      ++at_;
      while (token().kind == Token::Kind::Word && !is_word("do")) ++at_;  // in a b c
    }
    while (is_operator(";") || is_operator("\n")) ++at_;
  } else {
    // What a while loop asks is usually whether arguments are left: none are.
    list_in(Mode::Skip);
  }
  expect_word("do");
  if (is_for && mode_ == Mode::Run) taint(std::string(leading_name(variable)));
  list_in(is_for ? Mode::Taint : Mode::Skip);
  expect_word("done");
  while (token().kind == Token::Kind::Redirect) redirection();
  return Status::Ran;
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

Status ScriptReader::call(const Function& function) {
  const Level level(budget_);
  const auto before = std::tuple(tokens_, at_, file_);
  tokens_ = function.tokens;
  at_ = function.begin;
  file_ = function.file;
  const Status status = command();
  std::tie(tokens_, at_, file_) = before;
  return status;
}

Status ScriptReader::bracket_test(std::string_view close) {
  const std::size_t begin = ++at_;
  const int line = token().line;
  while (!is_word(close)) {
    if (token().kind == Token::Kind::End || (close == "]" && is_operator("\n")))
      throw ConfigError(fmt::format("expected '{}'", close));
    ++at_;
  }
  const std::span<const Token> tokens(tokens_->all.data() + begin, at_ - begin);
  ++at_;
  if (mode_ != Mode::Run) return Status::Unknown;
  const Status status = test_status(tokens, expander_);
  note_taken_as_empty(line);
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
  } catch (const UnknownOperand&) {
    return Status::Unknown;
  } catch (const ConfigError&) {
    return Status::Unknown;
  }
}

void ScriptReader::redirection() {
  const bool complete = token().complete;
  ++at_;
  if (!complete && token().kind == Token::Kind::Word) ++at_;
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
