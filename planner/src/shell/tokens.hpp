// A shell script cut into words and operators.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshplan::planner::shell {

struct Token {
  enum class Kind {
    Word,      // as written, with its quotes
    Operator,  // "\n" (also for a comment's end), ";", ";;", "&&", "||", "|", "&", "(", ")", "(("
               // ...
    Redirect,  // ">", "2>&1", "<<<" ...: a word follows unless `complete`
    End,
  };
  Kind kind = Kind::End;
  std::string text;
  int line = 0;
  bool complete = false;        // a redirection that needs no word: "2>&1", or a here-document
  std::string here = {};        // its text
  bool here_is_quoted = false;  // nothing in it is expanded
  bool operator==(const Token&) const = default;
};

struct Tokens {
  std::vector<Token> all;               // the last one is End
  std::vector<std::string> directives;  // what stands behind "#SBATCH" of comments
};

/// Continued lines are joined, comments left out; a here-document's text is with its operator.
/// "A=(" and "A+=(" are a word "A=" or "A+=" and the operator "(".
/// @throws ConfigError "LINE: unterminated quote" without the file's name
Tokens tokens_of(std::string_view script);

/// One past the end of what opens at `begin`: a quote, "$(", "${", "`". Where nothing opens, one
/// past the character. @throws ConfigError where it is not closed
std::size_t end_of_opened(std::string_view text, std::size_t begin);

}  // namespace meshplan::planner::shell
