#include "python/tokens.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/printable.hpp"

namespace meshplan::planner::python {
namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

/// Where the string that begins with a quote at `at` ends: behind its closing quotes; npos if it
/// never does.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool triple = text.substr(at, 3) == std::string(3, quote);
  std::size_t place = at + (triple ? 3 : 1);
  while (place < text.size()) {
    if (text[place] == '\\') {
      place += 2;
    } else if (triple ? text.substr(place, 3) == std::string(3, quote) : text[place] == quote) {
      return place + (triple ? 3 : 1);
    } else if (!triple && text[place] == '\n') {
      return std::string_view::npos;
    } else {
      ++place;
    }
  }
  return std::string_view::npos;
}

class LineSplitter {
 public:
  LineSplitter(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  std::vector<LogicalLine> run() {
    while (place_ < text_.size()) {
      const int indent = read_indent();
      if (place_ >= text_.size()) break;
      if (text_[place_] == '\n' || text_[place_] == '#' || text_[place_] == '\r') {
        skip_to_newline();
        continue;
      }
      read_statement(indent);
    }
    return std::move(lines_);
  }

 private:
  [[noreturn]] void fail(int line, std::string_view rule) const {
    throw ConfigError(fmt::format("{}:{}: {}", file_, line, rule));
  }

  int read_indent() {
    int columns = 0;
    for (; place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\t'); ++place_)
      columns = text_[place_] == '\t' ? (columns / 8 + 1) * 8 : columns + 1;
    return columns;
  }

  void skip_to_newline() {
    place_ = std::min(text_.find('\n', place_), text_.size());
    if (place_ < text_.size()) step();
  }

  void step() {
    if (text_[place_] == '\n') ++line_;
    ++place_;
  }

  void read_statement(int indent) {
    const std::size_t begin = place_;
    const int first_line = line_;
    int depth = 0;
    std::size_t end = begin;
    while (place_ < text_.size() && !(text_[place_] == '\n' && depth == 0)) {
      const char c = text_[place_];
      if (c == '#') {  // the rest of the line; inside brackets the statement goes on
        place_ = std::min(text_.find('\n', place_), text_.size());
        continue;
      }
      if (c == '\'' || c == '"') {
        skip_string();
      } else if (c == '\\' && text_.substr(place_ + 1, 1) == "\n") {
        step();
        step();
      } else {
        if (c == '(' || c == '[' || c == '{') ++depth;
        if (c == ')' || c == ']' || c == '}') --depth;
        if (depth < 0) fail(line_, fmt::format("'{}' closes nothing", c));
        if (depth > kDeepestBrackets)
          fail(line_, fmt::format("brackets nest deeper than {} levels", kDeepestBrackets));
        step();
      }
      if (c != ' ' && c != '\t' && c != '\r' && c != '\n') end = place_;
    }
    if (depth > 0) fail(first_line, "a bracket never closes");
    lines_.push_back(
        {.text = text_.substr(begin, end - begin), .line = first_line, .indent = indent});
    if (place_ < text_.size()) step();
  }

  void skip_string() {
    const int begin = line_;
    const std::size_t end = end_of_string(text_, place_);
    if (end == std::string_view::npos) fail(begin, "a string never ends");
    while (place_ < end) step();
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t place_ = 0;
  int line_ = 1;
  std::vector<LogicalLine> lines_;
};

void append_utf8(unsigned code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

/// Half of a character beyond 16 bits, which UTF-8 has no bytes for.
bool is_surrogate(unsigned code) {
  return code >= 0xD800 && code <= 0xDFFF;
}

std::string unescaped(std::string_view body) {
  constexpr std::array<std::pair<char, char>, 6> kSimple = {
      {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'\\', '\\'}, {'\'', '\''}, {'"', '"'}}};
  std::string out;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\' || i + 1 == body.size()) {
      out += body[i];
      continue;
    }
    const char c = body[++i];
    const auto* simple = std::ranges::find(kSimple, c, &std::pair<char, char>::first);
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
    const std::string_view hex = body.substr(std::min(i + 1, body.size()), digits);
    const bool is_hex = digits > 0 && hex.size() == digits &&
                        hex.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    const unsigned code =
        is_hex ? static_cast<unsigned>(std::stoul(std::string(hex), nullptr, 16)) : 0;
    if (simple != kSimple.end()) {
      out += simple->second;
    } else if (c == '\n') {  // a line that goes on
    } else if (is_hex && !is_surrogate(code)) {
      append_utf8(code, out);
      i += digits;
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

class Tokenizer {
 public:
  Tokenizer(const LogicalLine& line, const std::string& file)
      : text_(line.text), line_(line), file_(file) {}

  std::vector<Token> run() {
    while (skip_blanks()) {
      const char c = text_[place_];
      if (is_name_start(c))
        name_or_string();
      else if (is_digit(c) ||
               (c == '.' && place_ + 1 < text_.size() && is_digit(text_[place_ + 1])))
        number();
      else if (c == '\'' || c == '"')
        string("");
      else
        symbol();
    }
    tokens_.push_back({.begin = text_.size(), .end = text_.size()});
    return std::move(tokens_);
  }

 private:
  bool skip_blanks() {
    while (place_ < text_.size()) {
      const char c = text_[place_];
      if (c == '#')
        place_ = std::min(text_.find('\n', place_), text_.size());
      else if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\\')
        ++place_;
      else
        return true;
    }
    return false;
  }

  void add(TokenKind kind, std::size_t begin, std::string value) {
    tokens_.push_back({.kind = kind, .text = std::move(value), .begin = begin, .end = place_});
  }

  void name_or_string() {
    const std::size_t begin = place_;
    while (place_ < text_.size() && is_name_part(text_[place_])) ++place_;
    const std::string name(text_.substr(begin, place_ - begin));
    const bool prefix =
        name.size() <= 2 && name.find_first_not_of("rRbBfFuU") == std::string_view::npos;
    if (prefix && place_ < text_.size() && (text_[place_] == '\'' || text_[place_] == '"'))
      string(name);
    else
      add(TokenKind::Name, begin, name);
  }

  void number() {
    const std::size_t begin = place_;
    while (place_ < text_.size()) {
      const char c = text_[place_];
      const bool exponent_sign = (c == '+' || c == '-') && place_ > begin &&
                                 (text_[place_ - 1] == 'e' || text_[place_ - 1] == 'E');
      if (!is_name_part(c) && c != '.' && !exponent_sign) break;
      ++place_;
    }
    std::string digits(text_.substr(begin, place_ - begin));
    std::erase(digits, '_');
    add(TokenKind::Number, begin, std::move(digits));
  }

  void string(const std::string& prefix) {
    const std::size_t begin = place_ - prefix.size();
    const std::size_t quote = place_;
    const std::size_t end = end_of_string(text_, quote);
    const std::size_t marks = text_.substr(quote, 3) == std::string(3, text_[quote]) ? 3 : 1;
    if (end == std::string_view::npos || end < quote + 2 * marks)
      throw ConfigError(fmt::format("{}:{}: a string never ends", file_, line_.line));
    const std::string_view body = text_.substr(quote + marks, end - quote - 2 * marks);
    place_ = end;
    const bool raw = prefix.find_first_of("rR") != std::string_view::npos;
    add(TokenKind::String, begin, raw ? std::string(body) : unescaped(body));
    tokens_.back().is_literal = prefix.find_first_of("bBfF") == std::string_view::npos;
  }

  void symbol() {
    constexpr std::array<std::string_view, 21> kLong = {
        "**=", "//=", "...", ">>=", "<<=", "**", "//", "==", "!=", "<=", ">=",
        "->",  ":=",  "+=",  "-=",  "*=",  "/=", "%=", "|=", "&=", "^="};
    constexpr std::string_view kShort = "()[]{},:.;@=+-*/%<>&|^~";
    for (const std::string_view word : kLong)
      if (text_.substr(place_, word.size()) == word) {
        place_ += word.size();
        return add(TokenKind::Symbol, place_ - word.size(), std::string(word));
      }
    if (kShort.find(text_[place_]) == std::string_view::npos)
      throw ConfigError(fmt::format("{}:{}: '{}' is nothing that Python knows", file_, line_.line,
                                    printable_line(text_.substr(place_, 1))));
    ++place_;
    add(TokenKind::Symbol, place_ - 1, std::string(text_.substr(place_ - 1, 1)));
  }

  std::string_view text_;
  const LogicalLine& line_;
  const std::string& file_;
  std::size_t place_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<LogicalLine> logical_lines(std::string_view text, const std::string& file) {
  return LineSplitter(text, file).run();
}

std::vector<Token> tokens_of(const LogicalLine& line, const std::string& file) {
  return Tokenizer(line, file).run();
}

}  // namespace meshplan::planner::python
