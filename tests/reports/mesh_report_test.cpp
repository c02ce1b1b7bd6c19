#include "reports/mesh_report.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"

using namespace meshplan;
using namespace meshplan::reports;
using Catch::Matchers::Contains;

TEST_CASE("ranks and groups of tp2 dp2 are those of the order tp-cp-ep-dp-pp", "[reports][mesh]") {
  const program::Mesh mesh({.tp = 2, .dp = 2});
  CHECK(to_text(mesh) ==
        "tp2 dp2: 4 ranks\n"
        "\n"
        " rank  tp  cp  dp  pp\n"
        "    0   0   0   0   0\n"
        "    1   1   0   0   0\n"
        "    2   0   0   1   0\n"
        "    3   1   0   1   0\n"
        "\n"
        "tp: 2 groups of 2\n"
        "  0 1\n"
        "  2 3\n"
        "\n"
        "dp: 2 groups of 2\n"
        "  0 2\n"
        "  1 3\n"
        "\n"
        "tp-pp: 2 groups of 2\n"
        "  0 1\n"
        "  2 3\n"
        "\n"
        "dp-cp: 2 groups of 2\n"
        "  0 2\n"
        "  1 3\n"
        "\n"
        "world: 1 group of 4\n"
        "  0 1 2 3\n");
}

TEST_CASE("one rank is shown with its own groups", "[reports][mesh]") {
  const program::Mesh mesh({.tp = 2, .pp = 4, .dp = 2});
  // Rank 5 = tp 1, dp 0, pp 1; a stage has 4 ranks.
  const std::string text = to_text(mesh, 5);
  CHECK_THAT(text, Contains("    5   1   0   0   1\n"));
  CHECK_THAT(text, Contains("1 5 9 13"));
  CHECK_THAT(to_json(mesh, 5), Contains("\"pp\": 1"));
  CHECK_THROWS_AS(to_text(mesh, 16), ConfigError);
  CHECK_THROWS_AS(to_json(mesh, -1), ConfigError);
}

TEST_CASE("large meshes are shortened in text only", "[reports][mesh]") {
  const program::Mesh mesh({.tp = 8, .dp = 16});
  CHECK_THAT(to_text(mesh), Contains("...") && Contains("  127 ") && !Contains("\n   64 "));
  CHECK_THAT(to_json(mesh), Contains("\"rank\": 64"));
  const program::Mesh huge({.dp = 1 << 17});
  CHECK_THROWS_WITH(to_json(huge), Contains("131072 ranks; JSON lists at most 65536: name one"));
  CHECK_THAT(to_json(huge, 5), Contains("\"rank\": 5"));
}
