#include "core/csv.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan {

std::vector<CsvRow> parse_csv_rows(std::string_view text, const std::string& file) {
  std::vector<CsvRow> rows;
  std::vector<std::string> row;
  std::string cell;
  int line = 1, begin = 1;  // of the row
  bool quoted = false, any = false;
  const auto end_cell = [&] {
    row.push_back(std::move(cell));
    cell.clear();
  };
  const auto end_row = [&] {
    if (!any && cell.empty() && row.empty()) return;
    end_cell();
    rows.push_back({begin, std::move(row)});
    row.clear();
    any = false;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (quoted) {
      if (c != '"')
        cell += c;
      else if (i + 1 < text.size() && text[i + 1] == '"')
        cell += text[++i];
      else
        quoted = false;
    } else if (c == '"') {
      quoted = any = true;
    } else if (c == ',') {
      any = true;
      end_cell();
    } else if (c == '\n') {
      end_row();
      begin = line;
    } else if (c != '\r') {
      any = true;
      cell += c;
    }
  }
  if (quoted) throw ConfigError(fmt::format("{}: a quoted cell is not closed", file));
  end_row();
  return rows;
}

std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& file) {
  std::vector<std::vector<std::string>> cells;
  for (CsvRow& row : parse_csv_rows(text, file)) cells.push_back(std::move(row.cells));
  return cells;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + "\"";
}

}  // namespace meshplan
