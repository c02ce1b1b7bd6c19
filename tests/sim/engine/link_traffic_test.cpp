// What a step sends over each level of the fabric, against counts by hand.
#include "sim/engine/link_traffic.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/plans.hpp"

namespace meshplan::sim {
namespace {

const LinkTraffic& row_of(const std::vector<LinkTraffic>& traffic, const std::string& group,
                          Category category) {
  const auto found = std::ranges::find_if(traffic, [&](const LinkTraffic& row) {
    return row.group == group && row.category == category;
  });
  REQUIRE(found != traffic.end());
  return *found;
}

}  // namespace

TEST_CASE("a pipeline sends an activation and a gradient a micro-batch", "[sim][traffic]") {
  const program::Plan plan = tiny_plan({.pp = 2}, 6);
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 2);
  const auto traffic = link_traffic(play_plan(plan, cluster), cluster);
  const LinkTraffic& pp = row_of(traffic, "pp", Category::Pp);
  CHECK(pp.messages == Approx(6));  // stage 0 sends 6 activations, stage 1 as many gradients
  CHECK(pp.bytes == Approx(6.0 * 128 * plan.model.hidden_size * 4));
  CHECK(pp.level == 0);
}

TEST_CASE("a level is the outermost that a group needs", "[sim][traffic]") {
  const program::Plan plan = tiny_plan({.tp = 4, .dp = 4}, 2);
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 16);
  const auto traffic = link_traffic(play_plan(plan, cluster), cluster);
  CHECK(row_of(traffic, "tp", Category::Tp).level == 0);     // inside a node
  CHECK(row_of(traffic, "dp-cp", Category::Dp).level == 1);  // four tp groups on two nodes
}

TEST_CASE("what rows expose sums to the breakdown, played whole or in part", "[sim][traffic]") {
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 16);
  for (const int microbatches : {4, 96}) {
    const program::Plan plan = tiny_plan({.tp = 2, .pp = 4, .dp = 2, .sp = true}, microbatches);
    const PlayedPlan played = play_plan(plan, cluster);
    const Breakdown mean = mean_of(played.result.breakdown);
    std::array<double, kNumCategories> exposed{};
    double messages = 0;
    for (const LinkTraffic& row : link_traffic(played, cluster)) {
      exposed[static_cast<std::size_t>(row.category)] += row.exposed_s;
      CHECK(row.alone_s > 0);
      if (row.group == "pp") messages += row.messages;
    }
    for (const Category category : {Category::Tp, Category::Sp, Category::Pp, Category::Dp})
      CHECK(exposed[static_cast<std::size_t>(category)] == Approx(mean[category]).margin(1e-12));
    CHECK(messages == Approx(1.5 * microbatches));  // 3 + 3 of 4 stages
  }
}

}  // namespace meshplan::sim
