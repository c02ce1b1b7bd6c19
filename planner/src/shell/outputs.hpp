// Texts that are worked out without running anything: what harmless commands print, and edits of
// variables.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shell/expand.hpp"

namespace meshplan::planner::shell {

/// Output of $(...): of basename, dirname, realpath, echo, seq, expr, "cd ... && pwd" and
/// "echo ... | bc", where their words are known; else unknown.
/// @param inner  between the parentheses   @param written  with them
Value command_output(std::string_view inner, std::string_view written, Expander& expander);

/// ${X%.*}, ${X##*/}, ${X/a/b}, ${X:1:2}, ${X,,} of a known text.
/// @param edit  behind the name   @returns none for what is not read
std::optional<std::string> edited_text(const std::string& text, std::string_view edit,
                                       Expander& expander);

}  // namespace meshplan::planner::shell
