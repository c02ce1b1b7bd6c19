#include "core/utf8.hpp"

#include <fmt/format.h>

namespace meshplan {
namespace {

std::uint32_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

Utf8Character first_character(std::string_view text) {
  const std::uint32_t lead = byte_at(text, 0);
  if (lead < 0x80) return {.code = lead, .bytes = 1, .valid = true};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return {.code = lead};
  std::uint32_t code = lead & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const std::uint32_t next = byte_at(text, i);
    if ((next & 0xc0U) != 0x80U) return {.code = lead};
    code = (code << 6) | (next & 0x3fU);
  }
  const bool too_long = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (too_long || surrogate || code > 0x10ffff) return {.code = lead};
  return {.code = code, .bytes = length, .valid = true};
}

std::optional<std::size_t> first_non_text(std::string_view text) {
  for (std::size_t place = 0; place < text.size();) {
    if (text[place] == '\0') return place;
    const Utf8Character next = first_character(text.substr(place));
    if (!next.valid) return place;
    place += next.bytes;
  }
  return std::nullopt;
}

std::string non_text_message(std::string_view text, std::size_t place) {
  const std::uint32_t byte = byte_at(text, place);
  return byte == 0 ? "a byte 0x00, which no text has"
                   : fmt::format("byte 0x{:02x} is not UTF-8", byte);
}

}  // namespace meshplan
