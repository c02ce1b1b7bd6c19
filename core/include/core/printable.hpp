// Foreign text on its way to a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace meshplan {

/// Is it shown, and as itself? Not: control characters (C0, DEL, C1), Unicode's line separators,
/// its marks of direction, and what has no width and so hides inside a name. (U+200C and U+200D,
/// which join letters of Persian and of emoji, are among the latter.)
/// @param code  of a Unicode character
bool is_printable(std::uint32_t code);

/// `text` without anything that a terminal would obey or that would reorder or hide what a reader
/// sees: characters that are not printable become \uXXXX (but for tab and newline), bytes that are
/// no UTF-8 become \xXX. JSON text stays the same JSON.
std::string printable(std::string_view text);

/// The same on one line: newlines are escaped, too. For names and values inside a sentence.
std::string printable_line(std::string_view text);

}  // namespace meshplan
