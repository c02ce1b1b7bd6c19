#include "measure/balanced_routing.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "core/error.hpp"

using meshplan::runtime::balanced_routing;

TEST_CASE("A balanced router's integers agree with each other", "[runtime][calibrate]") {
  const int experts = 4;
  const std::int64_t top_k = 2, tokens = 9, rows = tokens * top_k;
  const auto choices = balanced_routing("layer.router.choices", rows, rows, experts);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    CHECK(choices[i] >= 0);
    CHECK(choices[i] < experts);
    if (i % 2 == 1) CHECK(choices[i] != choices[i - 1]);
  }
  const auto counts = balanced_routing("expert_counts", experts, rows, experts);
  const auto offsets = balanced_routing("expert_offsets", experts + 1, rows, experts);
  CHECK(std::accumulate(counts.begin(), counts.end(), 0) == rows);
  CHECK(offsets.front() == 0);
  for (std::size_t x = 0; x < counts.size(); ++x) CHECK(offsets[x] + counts[x] == offsets[x + 1]);
  const auto exchanged = balanced_routing("exchanged_rows", 2 * 3, rows, experts);
  CHECK(exchanged == std::vector<std::int32_t>{6, 6, 6, 6, 6, 6});
  CHECK(balanced_routing("choice_of_row", 3, rows, experts) == std::vector<std::int32_t>{0, 1, 2});
  CHECK_THROWS_AS(balanced_routing("novel_indices", 3, rows, experts), meshplan::InvariantError);
}
