#include "core/csv.hpp"

#include <fmt/format.h>
#include <limits>

#include "core/error.hpp"
#include "core/parse_number.hpp"

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

namespace {

/// Would a spreadsheet take this for a formula? Numbers have signs, too.
bool is_formula(std::string_view text) {
  if (text.empty()) return false;
  if (text[0] == '=' || text[0] == '@' || text[0] == '\t') return true;
  constexpr double kAny = std::numeric_limits<double>::max();
  const bool is_signed = text[0] == '+' || text[0] == '-';
  return is_signed && !parse_number(text.substr(text[0] == '+' ? 1 : 0), -kAny, kAny);
}

}  // namespace

std::string csv_cell(std::string_view text) {
  std::string cell = is_formula(text) ? fmt::format("'{}", text) : std::string(text);
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string result = "\"";
  for (const char c : cell) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + "\"";
}

}  // namespace meshplan
