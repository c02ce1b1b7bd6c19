#include "core/relaxed_json.hpp"

#include <algorithm>
#include <array>

namespace meshplan {
namespace {

/// The place behind the string that begins at `at`, or the end.
std::size_t after_json_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"' && text[at] != '\n'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

/// The place behind the comment that begins at `at`; `at` itself where none does.
std::size_t after_json_comment(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("/*")) {
    const std::size_t end = rest.find("*/", 2);
    return end == std::string_view::npos ? text.size() : at + end + 2;
  }
  if (rest.starts_with("//") || rest.starts_with("#"))
    return at + std::min(rest.find('\n'), rest.size());
  return at;
}

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

std::string without_json_comments(std::string_view text) {
  std::string strict(text);
  std::size_t comma = std::string::npos;  // the last character that counts, where it is a comma
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t end = after_json_comment(text, at); end > at) {
      for (; at < end; ++at)
        if (text[at] != '\n') strict[at] = ' ';
      continue;
    }
    const char c = text[at];
    if ((c == '}' || c == ']') && comma != std::string::npos) strict[comma] = ' ';
    const bool is_space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!is_space) comma = c == ',' ? at : std::string::npos;
    at = c == '"' ? after_json_string(text, at) : at + 1;
  }
  return strict;
}

std::string with_named_infinities(std::string_view text) {
  constexpr std::array<std::string_view, 3> kNames = {"NaN", "Infinity", "-Infinity"};
  std::string strict;
  strict.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    bool is_named = false;
    if (text[at] == '"') end = after_json_string(text, at);
    for (const std::string_view name : kNames)
      if (text.substr(at).starts_with(name)) end = at + name.size(), is_named = true;
    const bool begins = at == 0 || !is_word_character(text[at - 1]);
    const bool ends = end >= text.size() || !is_word_character(text[end]);
    is_named = is_named && begins && ends;
    if (is_named) strict += '"';
    strict += text.substr(at, end - at);
    if (is_named) strict += '"';
    at = end;
  }
  return strict;
}

}  // namespace meshplan
