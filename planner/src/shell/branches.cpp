// if, case, loops and calls: what becomes of the commands in them.
#include <fmt/format.h>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "core/line.hpp"
#include "shell/reader.hpp"

namespace meshplan::planner::shell {
namespace {

constexpr std::size_t kMostTurns = 4096;

}  // namespace

void ScriptReader::list_tainted(const std::set<std::string>& needs) {
  const std::set<std::string> outer = taint_needs_;
  if (mode_ == Mode::Run) taint_needs_ = needs;
  list_in(Mode::Taint);
  taint_needs_ = outer;
}

Status ScriptReader::if_command() {
  bool taken = false;           // a branch was, or would be
  bool unknown = false;         // a condition before was
  std::set<std::string> needs;  // of those
  bool left_out = false;
  const int at_line = line();
  while (is_word("if") || is_word("elif")) {
    ++at_;
    Status condition = Status::Unknown;
    needs_.clear();
    list_in(taken ? Mode::Skip : Mode::Run, &condition);
    expect_word("then");
    const bool asks = condition == Status::Unknown || condition == Status::Ran;
    if (!taken && asks) {
      unknown = true;
      add_needs(needs, needs_);
    }
    const bool takes = !taken && condition == Status::True;
    const bool may_take = !taken && condition != Status::False && !needs.empty();
    bool effects = false;
    if (may_take)
      list_tainted(needs);
    else
      effects = list_in(takes ? Mode::Run : Mode::Skip);
    left_out = left_out || (!takes && unknown && effects);
    taken = taken || takes;
  }
  if (is_word("else")) {
    ++at_;
    if (!taken && !needs.empty())
      list_tainted(needs);
    else
      list_in(taken ? Mode::Skip : Mode::Run);
  }
  expect_word("fi");
  needs_.clear();
  if (unknown && left_out && needs.empty() && mode_ == Mode::Run)
    assume(at_line, "a branch of this 'if' is left out: its condition is not known");
  return Status::Ran;
}

Status ScriptReader::case_command() {
  ++at_;
  Value value;
  if (mode_ == Mode::Run) {
    const Expander::EmptyIfUnset empty(expander_);
    value = expander_.text(token().text);
    note_taken_as_empty(line());
  }
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
  const int at_line = line();
  if (is_operator("(")) ++at_;
  bool matches = false;
  while (token().kind == Token::Kind::Word) {
    if (mode_ == Mode::Run && !taken) {
      const Value pattern = expander_.text(token().text);
      if (value.known())
        matches = matches || matches_pattern(value.text, pattern.text);
      else if (pattern.known())
        expander_.note_choice(value, pattern.text);
    }
    ++at_;
    if (is_operator("|")) ++at_;
  }
  if (!is_operator(")"))
    throw ConfigError(fmt::format("expected ')', got '{}'", short_line(token().text)));
  ++at_;
  std::set<std::string> needs;
  for (const Unknown& each : value.unknown) add_needs(needs, each.needs);
  bool effects = false;
  if (!needs.empty() && mode_ == Mode::Run)
    list_tainted(needs);
  else
    effects = list_in(matches ? Mode::Run : Mode::Skip);
  taken = taken || matches;
  if (is_operator(";;")) ++at_;
  if (is_operator("&")) ++at_;  // ;;& looks further, which is not followed
  if (mode_ == Mode::Run && !value.known() && needs.empty() && effects)
    assume(at_line,
           fmt::format("this branch of 'case' is left out: {}", value.unknown.front().why));
}

Status ScriptReader::loop() {
  const bool is_for = is_word("for") || is_word("select");
  const Status status = is_for ? for_loop() : while_loop();
  while (token().kind == Token::Kind::Redirect) redirection();
  return status;
}

bool ScriptReader::loop_body(std::size_t begin) {
  at_ = begin;
  const auto before = std::tuple(mode_, branches_, tokens_, file_, line_of_text_);
  bool goes_on = true;
  try {
    list_in(Mode::Run);
    return true;
  } catch (const Break&) {
    goes_on = false;
  } catch (const Continue&) {
  }
  std::tie(mode_, branches_, tokens_, file_, line_of_text_) = before;
  at_ = begin;
  const int effects = skipped_effects_;
  list_in(Mode::Skip);
  skipped_effects_ = effects;
  return goes_on;
}

Status ScriptReader::for_loop() {
  const bool is_for = is_word("for");
  std::string variable;
  std::vector<Value> items;
  bool known = is_for && mode_ == Mode::Run;
  ++at_;
  if (is_operator("((")) {
    at_ += 2;
    known = false;
  } else {
    variable = leading_name(token().text);
    ++at_;
    if (is_word("in")) {
      ++at_;
      for (; token().kind == Token::Kind::Word; ++at_)
        if (known)
          for (Value& item : expander_.fields(token().text)) items.push_back(std::move(item));
    } else {
      known = false;  // the arguments
    }
    for (const Value& item : items)
      known = known && item.known() && item.text.find_first_of("*?[{") == std::string::npos;
  }
  while (is_operator(";") || is_operator("\n")) ++at_;
  expect_word("do");
  if (known && !items.empty() && items.size() <= kMostTurns) {
    const std::size_t begin = at_;
    for (Value& item : items) {
      set(variable, {false, {std::move(item)}});
      if (!loop_body(begin)) break;
    }
  } else if (known && items.empty()) {
    list_in(Mode::Skip);
  } else {
    if (mode_ == Mode::Run) taint(variable);
    list_tainted({});
  }
  expect_word("done");
  return Status::Ran;
}

Status ScriptReader::while_loop() {
  const bool until = is_word("until");
  const std::size_t begin = ++at_;
  for (std::size_t turn = 0;; ++turn) {
    at_ = begin;
    needs_.clear();
    Status condition = Status::Unknown;
    list_in(Mode::Run, &condition);
    if (until) condition = negated(condition);
    expect_word("do");
    if (mode_ == Mode::Run && condition == Status::True && turn < kMostTurns) {
      if (loop_body(at_)) continue;
    } else if (mode_ == Mode::Run && condition == Status::Unknown && !needs_.empty()) {
      list_tainted(needs_);
    } else {
      list_in(condition == Status::False ? Mode::Skip : Mode::Taint);
    }
    break;
  }
  expect_word("done");
  needs_.clear();
  return Status::Ran;
}

Status ScriptReader::call(const Function& function, const std::vector<Value>& words) {
  const Level level(budget_);
  const auto before = std::tuple(tokens_, at_, file_, line_of_text_);
  Arguments outer = std::exchange(expander_.arguments, {});
  expander_.arguments.name = outer.name;
  expander_.arguments.of_function = true;
  set_arguments(words, 1);
  tokens_ = function.tokens;
  at_ = function.begin;
  file_ = function.file;
  line_of_text_.reset();
  const auto reading = std::tuple(mode_, branches_);
  Status status = Status::Ran;
  try {
    status = command();
  } catch (const Break&) {  // of no loop in the function
  } catch (const Continue&) {
  }
  std::tie(mode_, branches_) = reading;
  std::tie(tokens_, at_, file_, line_of_text_) = before;
  expander_.arguments = std::move(outer);
  return status;
}

}  // namespace meshplan::planner::shell
