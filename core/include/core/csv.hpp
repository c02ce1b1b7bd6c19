// Tables of text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshplan {

struct CsvRow {
  int line = 1;  // where it begins, from 1
  std::vector<std::string> cells;
};

/// Rows of cells with their lines, empty lines left out. RFC 4180: quoted cells may hold commas,
/// quotes (doubled) and line breaks.
/// @param file  for the message @throws ConfigError if a quoted cell is not closed
std::vector<CsvRow> parse_csv_rows(std::string_view text, const std::string& file);

/// The cells alone.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& file);

/// A cell as a line of such a file has it: quoted where it must be, and behind an apostrophe what a
/// spreadsheet would evaluate (OWASP, CSV Injection): `=1+1`, `@SUM(A1)`, `-x`, not `-1`.
std::string csv_cell(std::string_view text);

}  // namespace meshplan
