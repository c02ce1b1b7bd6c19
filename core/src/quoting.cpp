#include "core/quoting.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/printable.hpp"
#include "core/utf8.hpp"

namespace meshplan {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_letter_or_digit(char c) {
  return is_letter(c) || (c >= '0' && c <= '9');
}

/// What neither version of YAML takes for a number, a truth value, null or a date.
bool is_plain_in_yaml(std::string_view text) {
  constexpr std::array<std::string_view, 14> kReserved = {
      "y", "n", "yes", "no", "on", "off", "true", "~", "nan", "null", "none", "false", "inf", ""};
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (std::ranges::find(kReserved, lower) != kReserved.end()) return false;
  return is_letter(text.front()) && std::ranges::all_of(text, [](char c) {
           return is_letter_or_digit(c) || c == '_' || c == '-' || c == '.' || c == '/';
         });
}

/// Escapes that Python and YAML both read.
std::string double_quoted(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const Utf8Character next = first_character(text);
    if (!next.valid)
      quoted += "\\ufffd";
    else if (next.code == '"' || next.code == '\\')
      quoted += {'\\', text[0]};
    else if (next.code == '\n')
      quoted += "\\n";
    else if (is_printable(next.code))
      quoted += text.substr(0, next.bytes);
    else
      quoted += next.code <= 0xffff ? fmt::format("\\u{:04x}", next.code)
                                    : fmt::format("\\U{:08x}", next.code);
    text.remove_prefix(next.bytes);
  }
  return quoted + "\"";
}

/// Does the character mark up Markdown (CommonMark, GitHub's tables and formulas) at this place?
bool marks_up(std::string_view line, std::size_t at) {
  constexpr std::string_view kAnywhere = "\\`*[]|~$";
  constexpr std::string_view kAtBegin = "#+-=:";  // of a heading, a list, a rule, a table
  const char c = line[at];
  if (kAnywhere.find(c) != std::string_view::npos) return true;
  if (c != '_') return at == 0 && kAtBegin.find(c) != std::string_view::npos;
  const bool inside_word = at > 0 && at + 1 < line.size() && is_letter_or_digit(line[at - 1]) &&
                           is_letter_or_digit(line[at + 1]);
  return !inside_word;
}

}  // namespace

std::string shell_quoted(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,:/+=@%";
  const bool plain = !word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos;
  if (plain) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string comment_text(std::string_view text) {
  return printable_line(text);
}

std::string python_text(std::string_view text) {
  return double_quoted(text);
}

std::string docstring_text(std::string_view text) {
  const std::string quoted = double_quoted(text);
  return quoted.substr(1, quoted.size() - 2);
}

std::string yaml_text(std::string_view text) {
  return is_plain_in_yaml(text) ? std::string(text) : double_quoted(text);
}

std::string markdown_text(std::string_view text) {
  const std::string line = printable_line(text);
  std::string shown;  // not all that reads Markdown takes a backslash for HTML's characters
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (marks_up(line, at)) shown += '\\';
    const char c = line[at];
    shown += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return shown;
}

std::string html_text(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (c == '&')
      shown += "&amp;";
    else if (c == '<')
      shown += "&lt;";
    else if (c == '>')
      shown += "&gt;";
    else if (c == '"')
      shown += "&quot;";
    else if (c == '\'')
      shown += "&#39;";
    else
      shown += c;
  }
  return shown;
}

}  // namespace meshplan
