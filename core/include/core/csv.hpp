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

/// A cell as a line of such a file has it: quoted where it must be.
std::string csv_cell(const std::string& text);

}  // namespace meshplan
