// Python's text as logical lines and tokens. Nothing of it is ever run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshplan::planner::python {

/// Deepest nesting of brackets that is read.
constexpr int kDeepestBrackets = 64;

/// A statement, over as many lines as its brackets and strings take.
struct LogicalLine {
  std::string_view text;  // without indent and comment behind it
  int line = 0;           // of its beginning, from 1
  int indent = 0;         // columns; a tab goes to the next multiple of 8
};

enum class TokenKind { Name, Number, String, Symbol, End };

struct Token {
  TokenKind kind = TokenKind::End;
  std::string text;       // of a string: its value, escapes resolved
  std::size_t begin = 0;  // in the line's text
  std::size_t end = 0;
  bool is_literal = true;  // false: bytes or an f-string, whose value is not known
};

/// @throws ConfigError "FILE:LINE: ..." for a string or bracket that never ends, and brackets
/// deeper than the bound
std::vector<LogicalLine> logical_lines(std::string_view text, const std::string& file);

/// The last token is End. @throws ConfigError for a character that no Python token begins with
std::vector<Token> tokens_of(const LogicalLine& line, const std::string& file);

}  // namespace meshplan::planner::python
