#include "reports/table.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"

using namespace meshplan;
using namespace meshplan::reports;

TEST_CASE("numbers line up on the right and words on the left", "[reports][table]") {
  const Table table{.columns = {{"name", Align::Left}, {"ms"}, {"why", Align::Left}},
                    .rows = {{"a", "1.5", "x"}, {"longer", "10.25", ""}, {"b"}}};
  CHECK(to_text(table) ==
        "name       ms  why\n"
        "a         1.5  x\n"
        "longer  10.25\n"
        "b\n");
}

TEST_CASE("a table without titles has no line for them", "[reports][table]") {
  const Table table{.columns = {{"", Align::Left}, {""}}, .rows = {{"a", "1"}}};
  CHECK(to_text(table, 2) == "  a  1\n");
}

TEST_CASE("a row with too many cells is a bug", "[reports][table]") {
  CHECK_THROWS_AS(to_text({.columns = {{"a"}}, .rows = {{"1", "2"}}}), InvariantError);
}

TEST_CASE("numbers are grouped by thousands", "[reports][table]") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(5184) == "5,184");
  CHECK(grouped(-1234567) == "-1,234,567");
}

TEST_CASE("large counts keep one decimal", "[reports][table]") {
  CHECK(short_count(70553706496.0) == "70.6 B");
  CHECK(short_count(124439808.0) == "124.4 M");
  CHECK(short_count(512) == "512");
  CHECK(percent(0.4467) == "44.7 %");
}

TEST_CASE("a paragraph keeps within its columns", "[reports][table]") {
  CHECK(paragraph("one two  three", "", 7) == "one two\nthree\n");
  CHECK(paragraph("one two three", "- ", 9) == "- one two\n  three\n");
  CHECK(paragraph("a-word-wider-than-that b", "- ", 5) == "- a-word-wider-than-that\n  b\n");
  CHECK(paragraph("", "- ") == "- \n");
}
