// The table of published runs lies beside the checkout, for it is not ours to publish.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "sim/fit/validation.hpp"

namespace meshplan::sim {
namespace {

using Cells = std::vector<std::string>;

/// Quoted cells may hold commas; the table has no line breaks in cells.
Cells cells_of(const std::string& line) {
  Cells cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += c;
  }
  return cells;
}

std::string line_of(const Cells& cells) {
  std::string line;
  for (const std::string& cell : cells)
    line += (line.empty() && &cell == &cells[0] ? "" : ",") + cell;
  return line + "\n";
}

/// The table with labels and measurements blanked, its rows in another order: row i is row
/// `order[i]` of the given one.
std::string blanked(const std::string& text, const std::vector<std::size_t>& order) {
  const std::set<std::string> blank{
      "id",          "family",       "source", "model",           "notes",
      "step_time_s", "peak_mem_gib", "suite",  "step_time_basis", "peak_mem_kind"};
  std::istringstream stream(text);
  std::string header;
  std::getline(stream, header);
  const Cells columns = cells_of(header);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    Cells cells = cells_of(line);
    for (std::size_t c = 0; c < columns.size(); ++c)
      if (blank.contains(columns[c])) cells[c].clear();
    lines.push_back(line_of(cells));
  }
  std::string result = header + "\n";
  for (const std::size_t i : order) result += lines[i];
  return result;
}

}  // namespace

TEST_CASE("Nothing in a prediction is keyed by a label, a measurement or the order of rows",
          "[sim][validation]") {
  const std::filesystem::path table =
      std::filesystem::path(MESHPLAN_SOURCE_DIR) / "../shared/validation/published_dev.csv";
  std::ifstream file(table);
  if (!file) {
    WARN("skipped: there is no table of published runs at " << table.string());
    return;
  }
  std::stringstream text;
  text << file.rdbuf();
  const auto rows = parse_published_table(text.str(), "published_dev.csv");
  std::vector<std::size_t> order(rows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  const auto shuffled = parse_published_table(blanked(text.str(), order), "blanked.csv");
  REQUIRE(shuffled.size() == rows.size());
  const Constants constants = constants_of(fitted_constants());
  const auto named = PreparedTable(rows, one_by_one).predict(constants, one_by_one);
  const auto blank = PreparedTable(shuffled, one_by_one).predict(constants, one_by_one);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    REQUIRE(named[order[i]].prediction);
    REQUIRE(blank[i].prediction);
    equal += *named[order[i]].prediction == *blank[i].prediction ? 1 : 0;
  }
  CHECK(equal == order.size());
}

}  // namespace meshplan::sim
