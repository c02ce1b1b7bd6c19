// Expected places of a token's experts, against all choices that a router can make.
#include "prices/token_places.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>

namespace meshplan::sim {
namespace {

/// Mean over all sets of `top_k` experts that lie in one set of `top_groups` groups, each such set
/// of groups with all its choices.
double counted_places(int places, const ExpertChoice& choice) {
  const int experts = static_cast<int>(choice.experts);
  double sum = 0, count = 0;
  for (std::uint32_t groups = 0; groups < (1U << choice.groups); ++groups) {
    if (std::popcount(groups) != choice.top_groups) continue;
    for (std::uint32_t chosen = 0; chosen < (1U << experts); ++chosen) {
      if (std::popcount(chosen) != choice.top_k) continue;
      std::set<int> used;
      bool eligible = true;
      for (int expert = 0; expert < experts; ++expert) {
        if ((chosen >> expert & 1U) == 0) continue;
        const int group = expert * choice.groups / experts;
        eligible = eligible && (groups >> group & 1U) != 0;
        used.insert(expert * places / experts);
      }
      if (!eligible) continue;
      sum += static_cast<double>(used.size());
      count += 1;
    }
  }
  return sum / count;
}

}  // namespace

TEST_CASE("Expected places of a token are those of all its choices", "[sim][experts]") {
  for (const int top_k : {1, 2, 3, 4})
    for (const int places : {1, 2, 3, 4, 6, 12}) {
      CAPTURE(top_k, places);
      const ExpertChoice free{.experts = 12, .top_k = top_k};
      CHECK(expected_places(places, free) == Approx(counted_places(places, free)));
    }
}

TEST_CASE("Groups narrow the choices", "[sim][experts]") {
  for (const int top_groups : {1, 2, 3, 4})
    for (const int top_k : {1, 2, 3})
      for (const int places : {1, 2, 4, 12}) {
        CAPTURE(top_groups, top_k, places);
        const ExpertChoice limited{
            .experts = 12, .top_k = top_k, .groups = 4, .top_groups = top_groups};
        CHECK(expected_places(places, limited) == Approx(counted_places(places, limited)));
      }
}

}  // namespace meshplan::sim
