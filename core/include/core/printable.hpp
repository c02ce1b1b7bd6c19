// Foreign text on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace meshplan {

/// `text` without anything that a terminal would obey or that would reorder what a reader sees:
/// control characters (C0 but for tab and newline, DEL, C1), Unicode's line separators and its
/// marks of direction become \uXXXX, bytes that are no UTF-8 become \xXX. JSON text stays the same
/// JSON.
std::string printable(std::string_view text);

/// The same on one line: newlines are escaped, too. For names and values inside a sentence.
std::string printable_line(std::string_view text);

}  // namespace meshplan
