// What every answer of a search keeps to, whatever was asked: over many small searches, priced and
// played as `plan` does.
#include <catch2/catch.hpp>
#include <vector>

#include "planner/search/reasons.hpp"
#include "planner/search/search.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "support/cases.hpp"
#include "support/random.hpp"

namespace meshplan::planner {
namespace {

const int kSearches = testing::random_cases(500);

template <class T>
T one_of(testing::Random& random, std::vector<T> values) {
  return random.pick(values);
}

SearchRequest random_request(testing::Random& random) {
  SearchRequest request;
  request.model =
      models::load_preset(one_of<std::string>(random, {"tiny-llama", "tiny-gpt2", "tiny-moe"}));
  const std::string cluster = one_of<std::string>(
      random,
      {"dgx-h100", "dgx-a100", "8x-rtx4090-pcie", "gb200-nvl72", "jean-zay-a100", "cpu-host"});
  const bool gpus = cluster != "cpu-host";
  request.cluster = sim::with_ranks(sim::load_cluster_preset(cluster),
                                    one_of<int>(random, {1, 2, 4, gpus ? 8 : 4}));
  request.workload = {.seq_len = one_of<int>(random, {32, 64, 128}),
                      .global_batch_size = one_of<int>(random, {4, 6, 8, 12}),
                      .precision = gpus ? DType::BF16 : DType::F32};
  request.top = one_of<int>(random, {1, 3, 5});
  return request;
}

/// Differences sum to what they are differences of, and no time is negative.
void check_against(const RankedPlan& first, const RankedPlan& other) {
  const sim::StepPrediction& step = other.step();
  double sum = 0;
  for (const DifferencePart& part : difference_parts(first.step(), step)) sum += part.seconds;
  CHECK(sum == Approx(step.step_time_s - first.step_time_s()).margin(1e-9 * step.step_time_s));
  double total = 0;
  for (const sim::Category category : sim::all_categories()) {
    CHECK(step.seconds[category] >= -1e-9 * step.step_time_s);
    total += step.seconds[category];
  }
  CHECK(total == Approx(step.step_time_s).epsilon(1e-9));
}

}  // namespace

TEST_CASE("Of every search, all that is shown was played, and nothing shown beats the first",
          "[planner][answers]") {
  testing::Random random(20261123);
  int plans = 0;
  for (int i = 0; i < kSearches; ++i) {
    const SearchRequest request = random_request(random);
    INFO("search " << i << ": " << request.model.name << " on " << request.cluster.num_ranks()
                   << " of " << request.cluster.name << ", " << request.workload.global_batch_size
                   << " sequences of " << request.workload.seq_len);
    const SearchOutcome outcome = search(request, cost_model(request), serial());
    const auto* result = std::get_if<SearchResult>(&outcome);
    if (result == nullptr) continue;
    const RankedPlan& first = result->ranked.front();
    for (const RankedPlan& ranked : result->ranked) {
      INFO(describe(candidate_of(ranked.plan)));
      REQUIRE(ranked.simulated);
      CHECK(ranked.step().fits(request.memory_reserve));
      CHECK((ranked.ties || ranked.step_time_s() >= first.step_time_s()));
      check_against(first, ranked);
      ++plans;
    }
    for (const Alternative& alternative : result->alternatives) {
      if (!alternative.plan) continue;
      INFO(alternative.choice << ": " << describe(candidate_of(alternative.plan->plan)));
      REQUIRE(alternative.plan->simulated);
      CHECK(alternative.plan->step().fits(request.memory_reserve));
      CHECK(alternative.slower_by_s >= 0);
      check_against(first, *alternative.plan);
      ++plans;
    }
  }
  CHECK(plans > 4 * kSearches);
}

}  // namespace meshplan::planner
