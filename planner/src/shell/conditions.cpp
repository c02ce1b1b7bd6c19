#include "shell/conditions.hpp"

#include "core/parse_number.hpp"

namespace meshplan::planner::shell {
namespace {

constexpr int kMostParentheses = 64;

Status status_of(bool holds) {
  return holds ? Status::True : Status::False;
}

/// A test of a file or of the shell itself.
bool asks_the_machine(std::string_view option) {
  constexpr std::string_view kLetters = "abcdefghkprstuvwxGLNORS";
  return option.size() == 2 && option[0] == '-' && kLetters.find(option[1]) != std::string::npos;
}

class TestReader {
 public:
  TestReader(std::span<const Token> tokens, Expander& expander)
      : tokens_(tokens), expander_(expander) {}

  Status run() {
    const Status status = any(0);
    return at_ == tokens_.size() ? status : Status::Unknown;
  }

 private:
  bool done() const { return at_ >= tokens_.size(); }
  bool next_is(std::string_view text) const { return !done() && tokens_[at_].text == text; }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    ++at_;
    return true;
  }

  Status any(int level) {
    Status status = all(level);
    while (take("||") || take("-o")) {
      const Status other = all(level);
      if (status == Status::True || other == Status::True)
        status = Status::True;
      else if (status != Status::False || other != Status::False)
        status = Status::Unknown;
    }
    return status;
  }

  Status all(int level) {
    Status status = one(level);
    while (take("&&") || take("-a")) {
      const Status other = one(level);
      if (status == Status::False || other == Status::False)
        status = Status::False;
      else if (status != Status::True || other != Status::True)
        status = Status::Unknown;
    }
    return status;
  }

  Status one(int level) {
    if (level > kMostParentheses) throw ConfigError("a test nests too deep");
    if (take("!")) return negated(one(level + 1));
    if (take("(")) {
      const Status status = any(level + 1);
      return take(")") ? status : Status::Unknown;
    }
    if (done()) return Status::False;
    const std::string first = tokens_[at_++].text;
    if (first == "-n" || first == "-z") return is_empty(first == "-z");
    if (asks_the_machine(first) && !done()) {
      ++at_;
      return Status::Unknown;
    }
    const Value left = expander_.text(first);
    if (done() || next_is("&&") || next_is("||") || next_is(")") || next_is("-a") || next_is("-o"))
      return left.known() ? status_of(!left.text.empty()) : Status::Unknown;
    const std::string operation = tokens_[at_++].text;
    if (done()) return Status::Unknown;
    // A pattern of =~ may hold operators.
    if (operation == "=~") {
      at_ = tokens_.size();
      return Status::Unknown;
    }
    return compare(left, operation, tokens_[at_++].text);
  }

  Status is_empty(bool wanted) {
    if (done()) return status_of(wanted);
    const Value value = expander_.text(tokens_[at_++].text);
    return value.known() ? status_of(value.text.empty() == wanted) : Status::Unknown;
  }

  Status compare(const Value& left, const std::string& operation, const std::string& word) {
    const Value right = expander_.text(word);
    const bool is_text = operation == "=" || operation == "==" || operation == "!=";
    if (is_text && !left.known() && right.known()) expander_.note_choice(left, right.text);
    if (!left.known() || !right.known()) return Status::Unknown;
    const bool quoted = word.starts_with('"') || word.starts_with('\'');
    const bool equal = quoted ? left.text == right.text : matches_pattern(left.text, right.text);
    if (operation == "=" || operation == "==") return status_of(equal);
    if (operation == "!=") return status_of(!equal);
    const auto a = parse_number(left.text, -1e18, 1e18);
    const auto b = parse_number(right.text, -1e18, 1e18);
    if (!a || !b) return Status::Unknown;
    if (operation == "-eq") return status_of(*a == *b);
    if (operation == "-ne") return status_of(*a != *b);
    if (operation == "-lt") return status_of(*a < *b);
    if (operation == "-le") return status_of(*a <= *b);
    if (operation == "-gt") return status_of(*a > *b);
    if (operation == "-ge") return status_of(*a >= *b);
    return Status::Unknown;
  }

  std::span<const Token> tokens_;
  Expander& expander_;
  std::size_t at_ = 0;
};

}  // namespace

Status negated(Status status) {
  return status == Status::True    ? Status::False
         : status == Status::False ? Status::True
                                   : Status::Unknown;
}

bool matches_pattern(std::string_view text, std::string_view pattern) {
  constexpr std::size_t kMostSteps = 1 << 22;
  if (text.size() * pattern.size() > kMostSteps) return text == pattern;
  // Back to the last star, one character further, where the rest does not match.
  std::size_t at = 0;
  std::size_t in_pattern = 0;
  std::size_t star = std::string_view::npos;
  std::size_t after_star = 0;
  while (at < text.size()) {
    if (in_pattern < pattern.size() &&
        (pattern[in_pattern] == '?' || pattern[in_pattern] == text[at]) &&
        pattern[in_pattern] != '*') {
      ++at;
      ++in_pattern;
    } else if (in_pattern < pattern.size() && pattern[in_pattern] == '*') {
      star = in_pattern++;
      after_star = at;
    } else if (star != std::string_view::npos) {
      in_pattern = star + 1;
      at = ++after_star;
    } else {
      return false;
    }
  }
  while (in_pattern < pattern.size() && pattern[in_pattern] == '*') ++in_pattern;
  return in_pattern == pattern.size();
}

Status test_status(std::span<const Token> tokens, Expander& expander) {
  const Expander::EmptyIfUnset empty_if_unset(expander);
  return TestReader(tokens, expander).run();
}

}  // namespace meshplan::planner::shell
