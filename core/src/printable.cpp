#include "core/printable.hpp"

#include <cstdint>
#include <fmt/format.h>

#include "core/utf8.hpp"

namespace meshplan {
namespace {

/// As JSON spells it: beyond 16 bits in two halves.
std::string escape_of(std::uint32_t code) {
  if (code == '\n') return "\\n";
  if (code <= 0xffff) return fmt::format("\\u{:04x}", code);
  const std::uint32_t rest = code - 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character next = first_character(text);
    if (!next.valid)
      shown += fmt::format("\\x{:02x}", next.code);
    else if (!is_printable(next.code) && kept.find(text[0]) == std::string_view::npos)
      shown += escape_of(next.code);
    else
      shown += text.substr(0, next.bytes);
    text.remove_prefix(next.bytes);
  }
  return shown;
}

}  // namespace

bool is_printable(std::uint32_t code) {
  const auto among = [code](std::uint32_t first, std::uint32_t last) {
    return code >= first && code <= last;
  };
  const bool control = code < 0x20 || among(0x7f, 0x9f);
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool direction =
      code == 0x061c || among(0x200e, 0x200f) || among(0x202a, 0x202e) || among(0x2066, 0x2069);
  const bool hidden = code == 0x00ad || code == 0x034f || among(0x115f, 0x1160) ||
                      among(0x17b4, 0x17b5) || among(0x180b, 0x180f) || among(0x200b, 0x200d) ||
                      among(0x2060, 0x2065) || among(0x206a, 0x206f) || code == 0x3164 ||
                      code == 0xfeff || code == 0xffa0 || among(0xfff9, 0xfffb) ||
                      among(0xe0000, 0xe007f);
  return !control && !separator && !direction && !hidden;
}

std::string printable(std::string_view text) {
  return escaped(text, "\n\t");
}

std::string printable_line(std::string_view text) {
  return escaped(text, "\t");
}

}  // namespace meshplan
