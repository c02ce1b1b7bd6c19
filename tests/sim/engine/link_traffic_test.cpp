// What a step sends over each level of the fabric, against counts by hand.
#include "sim/engine/link_traffic.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "models/counts.hpp"
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
  const auto traffic = of_all_operations(link_traffic(play_plan(plan, cluster), cluster));
  CHECK(row_of(traffic, "tp", Category::Tp).level == 0);     // inside a node
  CHECK(row_of(traffic, "dp-cp", Category::Dp).level == 1);  // four tp groups on two nodes
}

TEST_CASE("sequence parallelism gathers and scatters as often as it did reduce", "[sim][traffic]") {
  // Megatron's f and g (Korthikanti et al. 2022, section 4.2): each all-reduce of tensor
  // parallelism becomes a reduce-scatter and an all-gather.
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 2);
  const program::Plan plan = tiny_plan({.tp = 2, .sp = true}, 2);
  const auto traffic = link_traffic(play_plan(plan, cluster), cluster);
  const auto messages = [&](const std::string& operation) {
    double sum = 0;
    for (const LinkTraffic& row : traffic)
      if (row.category == Category::Sp && row.operation == operation) sum += row.messages;
    return sum;
  };
  CHECK(messages("all_gather") > 0);
  CHECK(messages("reduce_scatter") > 0);
  CHECK(messages("send") == 0);
  double all = 0, merged = 0;
  for (const LinkTraffic& row : traffic) all += row.bytes;
  for (const LinkTraffic& row : of_all_operations(traffic)) merged += row.bytes;
  CHECK(all > 0);
  CHECK(merged == Approx(all));
  CHECK(of_all_operations(traffic).size() < traffic.size());
}

TEST_CASE("ZeRO-1 sends as much as an all-reduce, ZeRO-3 gathers weights twice", "[sim][traffic]") {
  // Rajbhandari et al. 2020, section 7: 2 psi for gradients summed whole or in parts, 3 psi where
  // weights are gathered for forward and backward. Embeddings are gathered once.
  constexpr int kRanks = 8;
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), kRanks);
  program::Plan plan = tiny_plan({.dp = kRanks}, 1);
  plan.model = models::load_preset("gpt2-124m");
  const auto sent = [&](int stage) {
    plan.zero_stage = stage;
    double sum = 0;
    for (const LinkTraffic& row : link_traffic(play_plan(plan, cluster), cluster))
      if (row.category == Category::Dp) sum += row.sent_bytes;
    return sum;
  };
  const models::ParameterCounts counts = models::count_parameters(models::build_graph(plan.model));
  const double psi = 4.0 * static_cast<double>(counts.total);
  const double embedding = 4.0 * static_cast<double>(counts.embedding);
  constexpr double kOthers = double(kRanks - 1) / kRanks;
  CHECK(sent(0) == Approx(2 * kOthers * psi).epsilon(0.01));  // with norms and losses
  CHECK(sent(1) == Approx(sent(0)).epsilon(0.01));
  CHECK(sent(3) == Approx(kOthers * (3 * psi - embedding)).epsilon(0.03));
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
