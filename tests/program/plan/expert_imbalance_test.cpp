#include "program/plan/expert_imbalance.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace meshplan::program::imbalance {  // files are compiled together
namespace {

TEST_CASE("the busiest of some ranks over their mean is counted by hand", "[program][imbalance]") {
  const std::vector<double> load = {6, 2, 1, 1, 0, 2, 4, 8};  // 24
  CHECK(imbalance_over(load, 1) == 1);
  CHECK(imbalance_over(load, 2) == Approx(14.0 / 12));
  CHECK(imbalance_over(load, 4) == Approx(12.0 / 6));
  CHECK(imbalance_over(load, 8) == Approx(8.0 / 3));
  CHECK(imbalance_over(std::vector<double>(8, 0.0), 4) == 1);
}

TEST_CASE("an imbalance is known by the size of a group", "[program][imbalance]") {
  const ExpertImbalance same(1.5);
  CHECK(same.over(1) == 1);
  CHECK(same.over(2) == 1.5);
  CHECK(same.over(64) == 1.5);
  const ExpertImbalance known({{2, 1.1}, {8, 1.6}, {16, 2.0}});
  CHECK(known.over(1) == 1);
  CHECK(known.over(2) == 1.1);
  CHECK(known.over(8) == 1.6);
  CHECK(known.over(4) == Approx(std::sqrt(1.1 * 1.6)));
  CHECK(known.over(64) == 2.0);
}

TEST_CASE("a skew makes more ranks less even", "[program][imbalance]") {
  const ExpertImbalance even = imbalance_of_skew(0, 64), skewed = imbalance_of_skew(0.5, 64);
  for (const int ep : {2, 4, 8, 16, 32, 64}) {
    CAPTURE(ep);
    CHECK(even.over(ep) == Approx(1));
    CHECK(skewed.over(ep) > skewed.over(ep / 2));
    CHECK(imbalance_of_skew(1, 64).over(ep) > skewed.over(ep));
  }
  // One expert a rank: the first one's part, whatever the placement.
  double all = 0;
  for (int i = 1; i <= 64; ++i) all += 1 / std::sqrt(i);
  CHECK(skewed.over(64) == Approx(64 / all));
}

}  // namespace
}  // namespace meshplan::program::imbalance
