// Foreign text of one line: names, paths and messages in the files of others.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace meshplan {

/// What keeps `text` from being one printable line (core/printable.hpp) of UTF-8: "U+000A at byte
/// 2", "byte 0xff at 5 is not UTF-8", "300 bytes"; empty if nothing does.
std::string line_fault(std::string_view text, std::size_t most_bytes);

/// The text as a message quotes it: printable_line, cut where it is long.
std::string short_line(std::string_view text);

/// Refuses what is no such line, so that a name can neither begin a line of a script or a log nor
/// look like another one.
/// @param place  "FILE: PATH"
/// @throws ConfigError with the place, the text as it can be shown, the fault and the nearest line
void require_line(std::string_view text, std::string_view place, std::size_t most_bytes);

}  // namespace meshplan
