#include "reports/table.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/words.hpp"

namespace meshplan::reports {
namespace {

constexpr std::string_view kColumnGap = "  ";

std::vector<std::size_t> widths_of(const Table& table) {
  std::vector<std::size_t> widths;
  for (const Column& column : table.columns) widths.push_back(column.title.size());
  for (const auto& row : table.rows) {
    require_invariant(row.size() <= widths.size(), "a table row has more cells than columns");
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

std::string line_of(const std::vector<std::string>& cells, const Table& table,
                    const std::vector<std::size_t>& widths, int indent) {
  std::string line(static_cast<std::size_t>(indent), ' ');
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += kColumnGap;
    line += table.columns[i].align == Align::Right ? fmt::format("{:>{}}", cells[i], widths[i])
                                                   : fmt::format("{:<{}}", cells[i], widths[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string to_text(const Table& table, int indent) {
  const std::vector<std::size_t> widths = widths_of(table);
  std::vector<std::string> titles;
  for (const Column& column : table.columns) titles.push_back(column.title);
  std::string text;
  if (std::ranges::any_of(titles, [](const std::string& title) { return !title.empty(); }))
    text += line_of(titles, table, widths, indent);
  for (const auto& row : table.rows) text += line_of(row, table, widths, indent);
  return text;
}

std::string paragraph(std::string_view text, std::string_view bullet, std::size_t columns) {
  std::string lines, line(bullet);
  for (const std::string& word : words_of(text)) {
    if (line.size() > bullet.size() && line.size() + 1 + word.size() > columns) {
      lines += line + "\n";
      line.assign(bullet.size(), ' ');
    }
    line += line.size() > bullet.size() ? " " + word : word;
  }
  return lines + line + "\n";
}

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t place = digits.size(); place > first + 3; place -= 3)
    digits.insert(place - 3, 1, ',');
  return digits;
}

std::string short_count(double number) {
  struct Scale {
    double unit;
    const char* name;
  };
  for (const auto& [unit, name] : {Scale{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}})
    if (number >= unit) return fmt::format("{:.1f} {}", number / unit, name);
  return fmt::format("{:.0f}", number);
}

std::string percent(double fraction) {
  return fmt::format("{:.1f} %", 100 * fraction);
}

std::string signed_percent(double fraction) {
  return fmt::format("{:+.1f} %", 100 * fraction);
}

}  // namespace meshplan::reports
