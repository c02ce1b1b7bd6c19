#include "core/csv.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"

namespace meshplan {

using Rows = std::vector<std::vector<std::string>>;

TEST_CASE("a quoted cell may hold what else ends one", "[core][csv]") {
  CHECK(parse_csv("a,b\n1,\"x,\ny \"\"z\"\"\"\n", "t.csv") ==
        Rows{{"a", "b"}, {"1", "x,\ny \"z\""}});
}

TEST_CASE("empty lines are no rows, empty cells are cells", "[core][csv]") {
  CHECK(parse_csv("a,b\r\n\n,\n", "t.csv") == Rows{{"a", "b"}, {"", ""}});
  CHECK(parse_csv("a,\"\"", "t.csv") == Rows{{"a", ""}});
  CHECK(parse_csv("", "t.csv").empty());
}

TEST_CASE("a quoted cell that does not end is refused", "[core][csv]") {
  CHECK_THROWS_AS(parse_csv("a,\"b\n", "t.csv"), ConfigError);
}

TEST_CASE("Rows know the line that they begin on", "[core][csv]") {
  const std::vector<CsvRow> rows = parse_csv_rows("a,b\n\n1,\"x\ny\"\n2,z", "t.csv");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].line == 1);
  CHECK(rows[1].line == 3);  // behind an empty line
  CHECK(rows[2].line == 5);  // behind a cell of two lines
}

}  // namespace meshplan
