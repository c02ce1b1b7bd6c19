// A search that is stopped: what it shows was played and fits, and it says that it is not complete.
#include <atomic>
#include <catch2/catch.hpp>

#include "fake_costs.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

/// Outcome of a search that is stopped after so many estimates.
SearchOutcome stopped_after(const SearchRequest& request, const CostModel& costs, int estimates) {
  std::atomic<int> priced{0};
  CostModel counting = costs;
  counting.estimator = [&]() -> CostModel::Estimate {
    return [&priced, estimate = costs.estimator()](const program::Plan& plan,
                                                   const sim::Wanted& wanted) {
      ++priced;
      return estimate(plan, wanted);
    };
  };
  return search(request, counting, serial(), {}, [&] { return priced >= estimates; });
}

void check_sums(const SearchCounts& counts) {
  CHECK(counts.total == counts.broke_a_rule + counts.did_not_fit + counts.ranked + counts.bounded);
}

SearchRequest llama_on_eight() {
  SearchRequest request;
  request.model = models::load_preset("llama3-8b");
  request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 8);
  request.workload = {.seq_len = 4096, .global_batch_size = 64, .precision = DType::BF16};
  return request;
}

}  // namespace

TEST_CASE("A search that is stopped before its first plan has found none", "[planner][stop]") {
  const SearchOutcome outcome = stopped_after(small_request(), fake_costs(), 0);
  const auto& result = std::get<InfeasibleResult>(outcome);
  CHECK(result.incomplete);
  CHECK(result.counts == SearchCounts{});
  CHECK_FALSE(result.nearest_miss);
}

TEST_CASE("A search that is stopped answers with the best of what it priced", "[planner][stop]") {
  const SearchRequest request = small_request();
  const auto whole = std::get<SearchResult>(search(request, fake_costs(), serial()));
  std::size_t before = 0;
  for (const int estimates : {1, 2, 7, 40, 200}) {
    INFO(estimates << " estimates");
    const auto result = std::get<SearchResult>(stopped_after(request, fake_costs(), estimates));
    CHECK(result.incomplete);
    CHECK(result.counts.total < whole.counts.total);
    CHECK(result.counts.total >= before);
    before = result.counts.total;
    check_sums(result.counts);
    CHECK(result.ranked.front().step_time_s() >= whole.ranked.front().step_time_s());
    CHECK(result.ranked.front().plan.prediction->reasons.front().find("stopped") !=
          std::string::npos);
  }
}

TEST_CASE("Whatever a stop cuts short, smaller plans that lack memory are still told",
          "[planner][stop]") {
  const FakeWeights tight{.capacity_bytes = 200};
  for (int estimates = 1; estimates < 120; estimates += 3) {
    INFO(estimates << " estimates");
    const SearchOutcome outcome = stopped_after(small_request(), fake_costs(tight), estimates);
    std::visit([](const auto& result) { check_sums(result.counts); }, outcome);
    if (const auto* result = std::get_if<SearchResult>(&outcome))
      for (const RankedPlan& ranked : result->ranked) CHECK(ranked.step().fits(0));
  }
}

TEST_CASE("What a stopped search shows was played and fits", "[planner][stop]") {
  const SearchRequest request = llama_on_eight();
  int found = 0;
  for (const int estimates : {1, 20, 100, 400, 1000}) {
    INFO(estimates << " estimates");
    const SearchOutcome outcome = stopped_after(request, cost_model(request), estimates);
    if (const auto* result = std::get_if<SearchResult>(&outcome)) {
      ++found;
      CHECK(result->incomplete);
      for (const RankedPlan& ranked : result->ranked) {
        REQUIRE(ranked.simulated);
        CHECK(ranked.step().fits(request.memory_reserve));
      }
    } else {
      CHECK(std::get<InfeasibleResult>(outcome).incomplete);
    }
  }
  CHECK(found >= 3);
}

TEST_CASE("A stop between plays leaves what was played", "[planner][stop]") {
  const SearchRequest request = llama_on_eight();
  CostModel costs = cost_model(request);
  int played = 0;
  const auto simulate = costs.simulate;
  costs.simulate = [&](const program::Plan& plan, std::int64_t most_events) {
    ++played;
    return simulate(plan, most_events);
  };
  for (const int plays : {1, 3, 9}) {
    played = 0;
    const auto result = std::get<SearchResult>(
        search(request, costs, serial(), {}, [&] { return played >= plays; }));
    CHECK(result.incomplete);
    CHECK(played >= plays);
    CHECK(played <= plays + 1);  // the one that decides whether there is an answer
    for (const RankedPlan& ranked : result.ranked) CHECK(ranked.simulated);
    for (const Alternative& alternative : result.alternatives)
      CHECK((!alternative.plan || alternative.plan->simulated));
  }
}

TEST_CASE("A stop that nobody asks for changes nothing", "[planner][stop]") {
  const auto whole = std::get<SearchResult>(search(small_request(), fake_costs(), serial()));
  const auto same = std::get<SearchResult>(stopped_after(small_request(), fake_costs(), 1 << 30));
  CHECK_FALSE(same.incomplete);
  CHECK(same.counts == whole.counts);
  CHECK(same.ranked.front().plan == whole.ranked.front().plan);
}

}  // namespace meshplan::planner
