// Text as UTF-8 (RFC 3629).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace meshplan {

struct Utf8Character {
  std::uint32_t code = 0;  // of what is none, its first byte
  std::size_t bytes = 1;
  bool valid = false;
};

/// The character that starts at `text[0]` (shortest form, no surrogates, up to U+10FFFF).
Utf8Character first_character(std::string_view text);

/// The first byte that is no part of a character, or is 0, which no text has.
std::optional<std::size_t> first_non_text(std::string_view text);

/// "byte 0xe9 is not UTF-8" of the byte at `place`.
std::string non_text_message(std::string_view text, std::size_t place);

}  // namespace meshplan
