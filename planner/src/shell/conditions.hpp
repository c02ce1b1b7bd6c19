// [ ... ] and [[ ... ]].
#pragma once

#include <span>

#include "shell/expand.hpp"
#include "shell/tokens.hpp"

namespace meshplan::planner::shell {

/// How a command ends.
enum class Status {
  True,
  False,
  Ran,      // a program that nobody ran: it is taken to succeed, but decides no branch
  Unknown,  // depends on a file, a command's output or a pattern that is not read here
};

Status negated(Status status);

/// Does the text match the pattern? '*' stands for any text, '?' for one character.
bool matches_pattern(std::string_view text, std::string_view pattern);

/// @param tokens  between the brackets
/// @throws ConfigError
Status test_status(std::span<const Token> tokens, Expander& expander);

}  // namespace meshplan::planner::shell
