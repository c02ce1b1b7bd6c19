// Foreign text in the languages of written files: a function for each language, and whatever a
// text holds, it stays one piece of data where these put it. Names in files of others are printable
// lines already (core/line.hpp); these do not rely on it. JSON is written by its library, cells of
// tables by core/csv.hpp.
#pragma once

#include <string>
#include <string_view>

namespace meshplan {

/// One word of a shell (POSIX), which reads it back as it is: quoted where it holds what a shell
/// would take for itself.
std::string shell_quoted(std::string_view word);

/// The text of a comment of shell, Python, YAML or TOML, behind its '#': one line.
std::string comment_text(std::string_view text);

/// A text of Python between double quotes; what is no UTF-8 becomes U+FFFD.
std::string python_text(std::string_view text);
/// The inside of a docstring between three double quotes, on one line.
std::string docstring_text(std::string_view text);

/// A text of YAML: plain where versions 1.1 (PyYAML) and 1.2 both take it for a text, else between
/// double quotes; what is no UTF-8 becomes U+FFFD.
std::string yaml_text(std::string_view text);

/// Text of Markdown that is shown as it is, on one line: also in a cell of a table, or where it
/// begins a line.
std::string markdown_text(std::string_view text);

/// Text of HTML and SVG, between tags or between the quotes of an attribute.
std::string html_text(std::string_view text);

}  // namespace meshplan
