#include "core/line.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "core/utf8.hpp"

namespace meshplan {
namespace {

constexpr std::size_t kLongestShown = 80;  // bytes of a text in a message

/// The first bytes, whole characters.
std::string beginning(std::string_view text, std::size_t most_bytes) {
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t bytes = first_character(text.substr(end)).bytes;
    if (end + bytes > most_bytes) break;
    end += bytes;
  }
  return std::string(text.substr(0, end));
}

/// The text without what cannot be shown, cut to the length.
std::string nearest_line(std::string_view text, std::size_t most_bytes) {
  std::string line;
  for (std::string_view rest = text; !rest.empty() && line.size() < most_bytes;) {
    const Utf8Character next = first_character(rest);
    const bool shown = next.valid && is_printable(next.code);
    if (shown)
      line += rest.substr(0, next.bytes);
    else if (next.code < 0x20 && !line.ends_with(' '))
      line += ' ';
    rest.remove_prefix(next.bytes);
  }
  return beginning(line, most_bytes);
}

}  // namespace

std::string short_line(std::string_view text) {
  if (text.size() <= kLongestShown) return printable_line(text);
  return printable_line(beginning(text, kLongestShown)) + "...";
}

std::string line_fault(std::string_view text, std::size_t most_bytes) {
  if (text.size() > most_bytes) return fmt::format("{} bytes", text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character next = first_character(text.substr(at));
    if (!next.valid) return fmt::format("byte 0x{:02x} at {} is not UTF-8", next.code, at + 1);
    if (!is_printable(next.code)) return fmt::format("U+{:04X} at byte {}", next.code, at + 1);
    at += next.bytes;
  }
  return "";
}

void require_line(std::string_view text, std::string_view place, std::size_t most_bytes) {
  const std::string fault = line_fault(text, most_bytes);
  if (fault.empty()) return;
  throw ConfigError(fmt::format(
      "{}: expected one printable line of at most {} bytes of UTF-8, got '{}' ({}); nearest: '{}'",
      place, most_bytes, short_line(text), fault, short_line(nearest_line(text, most_bytes))));
}

}  // namespace meshplan
