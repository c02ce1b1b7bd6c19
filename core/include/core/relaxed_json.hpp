// JSON that other programs accept or write, as the strict JSON that parse_json reads. Lines stay
// where they were.
#pragma once

#include <string>
#include <string_view>

namespace meshplan {

/// Comments (`//`, `#`, `/* */`) and commas before a closing bracket become spaces, as readers of
/// Hjson and JSON5 pass over them. What stands in strings stays.
std::string without_json_comments(std::string_view text);

/// NaN, Infinity and -Infinity, which Python's json module writes for numbers that JSON has no
/// words for, become strings: whoever asks for such a number gets an error with its name.
std::string with_named_infinities(std::string_view text);

}  // namespace meshplan
