#include "core/printable.hpp"

#include <cstdint>
#include <fmt/format.h>

#include "core/utf8.hpp"

namespace meshplan {
namespace {

bool is_obeyed(std::uint32_t code) {
  const bool control = code < 0x20 || (code >= 0x7f && code <= 0x9f);
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool direction = code == 0x200e || code == 0x200f || code == 0x061c ||
                         (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return control || separator || direction;
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character next = first_character(text);
    if (!next.valid)
      shown += fmt::format("\\x{:02x}", next.code);
    else if (is_obeyed(next.code) && kept.find(text[0]) == std::string_view::npos)
      shown += next.code == '\n' ? "\\n" : fmt::format("\\u{:04x}", next.code);
    else
      shown += text.substr(0, next.bytes);
    text.remove_prefix(next.bytes);
  }
  return shown;
}

}  // namespace

std::string printable(std::string_view text) {
  return escaped(text, "\n\t");
}

std::string printable_line(std::string_view text) {
  return escaped(text, "\t");
}

}  // namespace meshplan
