// Plain text for terminals: tables and numbers with a fixed number of digits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::reports {

enum class Align { Left, Right };

struct Column {
  std::string title;
  Align align = Align::Right;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // of at most as many cells as there are columns
};

/// One line per row under a line of titles (left out if all are empty), two spaces between columns,
/// no trailing spaces. @throws InvariantError if a row has more cells than there are columns
std::string to_text(const Table& table, int indent = 0);

/// In lines of at most so many columns, the first after `bullet`, the others indented by as much.
std::string paragraph(std::string_view text, std::string_view bullet = "",
                      std::size_t columns = 100);

/// "5,184"
std::string grouped(std::int64_t number);
/// "70.6 B", "124.4 M", "999"
std::string short_count(double number);
/// "44.7 %"
std::string percent(double fraction);
/// "+44.7 %"
std::string signed_percent(double fraction);

}  // namespace meshplan::reports
