#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "planner/search/fake_costs.hpp"
#include "planner/search/search.hpp"
#include "program/checks/check.hpp"

namespace meshplan::planner {
namespace {

/// Nodes of one rank, so that layouts differ in what a node takes with it.
SearchRequest request_of(int ranks, double mtbf_hours) {
  SearchRequest request = small_request(ranks);
  request.cluster.num_nodes = ranks;
  request.cluster.devices_per_node = 1;
  request.space = without_variants();
  request.failures = FailureAssumptions{.device_mtbf_hours = mtbf_hours,
                                        .smaller_world = SmallerWorld::ShrinkBatch,
                                        .repair_hours = 12};
  return request;
}

SearchResult found(const SearchRequest& request, const FakeWeights& weights) {
  return std::get<SearchResult>(search(request, fake_costs(weights), serial()));
}

/// The least step time over goodput of all plans of the space, priced one by one.
double best_by_brute_force(const SearchRequest& request, const FakeWeights& weights) {
  const FailureModel model(request.model, {}, request.cluster, *request.failures);
  double best = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate :
       enumerate(request.model, request.workload, {request.cluster.num_ranks(), 1},
                 request.constraints, request.space)) {
    const program::Plan plan = make_plan(request, candidate);
    if (!program::check(plan).empty()) continue;
    const double step = fake_estimate(plan, weights).step_time_s;
    best = std::min(best, step / model.goodput(plan, step).goodput);
  }
  return best;
}

}  // namespace

TEST_CASE("A search with failures finds the least step over goodput", "[planner][failures]") {
  for (const double mtbf_hours : {300.0, 3'000.0, 1e6})
    for (const double dp_s : {0.05, 0.3, 1.0}) {
      const FakeWeights weights{.dp_s = dp_s};
      const SearchRequest request = request_of(8, mtbf_hours);
      const SearchResult result = found(request, weights);
      const RankedPlan& first = result.ranked.front();
      REQUIRE(first.goodput);
      CHECK(first.effective_s() == Approx(best_by_brute_force(request, weights)).epsilon(1e-9));
      CHECK(first.effective_s() == Approx(first.step_time_s() / first.goodput->goodput));
    }
}

TEST_CASE("Failures prefer replicas that span fewer nodes", "[planner][failures]") {
  // One pipeline of eight ranks is a little faster a step, but stands still without any of them.
  const FakeWeights weights{.tp_s = 10, .dp_s = 0.6};
  SearchRequest request = request_of(8, 300);
  const SearchResult with = found(request, weights);
  request.failures.reset();
  const SearchResult without = found(request, weights);
  CHECK_FALSE(without.ranked.front().goodput);
  CHECK(without.ranked.front().step_time_s() < with.ranked.front().step_time_s());
  CHECK(without.ranked.front().plan.parallel.dp < with.ranked.front().plan.parallel.dp);
  const auto& reasons = with.ranked.front().plan.prediction->reasons;
  const auto says = [&](const char* words) {
    return std::ranges::any_of(reasons, [&](const std::string& reason) {
      return reason.find(words) != std::string::npos;
    });
  };
  CHECK(says("failures decide: "));
  CHECK(says("goodput "));
  for (std::size_t i = 1; i < with.ranked.size(); ++i)
    if (!with.ranked[i].ties)
      CHECK(with.ranked[i].effective_s() >= with.ranked.front().effective_s());
}

}  // namespace meshplan::planner
