// What holds between searches: more memory is never worse, pins and bounds hold for all that is
// shown, and the order of the work changes nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "core/error.hpp"
#include "fake_costs.hpp"
#include "planner/search/search.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "support/cases.hpp"
#include "support/random.hpp"

namespace meshplan::planner {
namespace {

const int kRequests = testing::random_cases(15);

template <class T>
T any_of(testing::Random& random, std::vector<T> values) {
  return random.pick(values);
}

/// Of the fastest plan that is shown: #1 may be simpler and as good as that.
double fastest_s(const SearchOutcome& outcome) {
  const auto* result = std::get_if<SearchResult>(&outcome);
  if (result == nullptr) return 1e300;
  return std::ranges::min(result->ranked, {}, &RankedPlan::step_time_s).step_time_s();
}

SearchRequest tiny_request(testing::Random& random) {
  SearchRequest request;
  request.model =
      models::load_preset(any_of<std::string>(random, {"tiny-llama", "tiny-gpt2", "tiny-moe"}));
  request.cluster = sim::with_ranks(
      sim::load_cluster_preset(any_of<std::string>(random, {"dgx-h100", "dgx-a100"})),
      any_of<int>(random, {2, 4, 8}));
  request.workload = {.seq_len = any_of<int>(random, {64, 128}),
                      .global_batch_size = any_of<int>(random, {8, 12, 16}),
                      .precision = DType::BF16};
  request.top = 20;
  return request;
}

/// A bound now and then.
std::optional<int> sometimes(testing::Random& random, std::vector<int> values) {
  if (!random.one_in(3)) return std::nullopt;
  return random.pick(values);
}

Constraints random_pins(testing::Random& random) {
  Constraints pins;
  pins.tp = sometimes(random, {1, 2});
  pins.pp = sometimes(random, {1, 2});
  pins.micro_batch_size = sometimes(random, {1, 2, 4});
  pins.zero_stage = sometimes(random, {0, 1});
  pins.at_least.pp = sometimes(random, {1, 2});
  pins.at_least.vpp = sometimes(random, {1, 2});
  pins.at_least.dp = sometimes(random, {1, 2});
  pins.at_least.zero_stage = sometimes(random, {0, 1});
  pins.at_least.micro_batch_size = sometimes(random, {1, 2});
  pins.at_most.tp = sometimes(random, {1, 2, 4});
  pins.at_most.pp = sometimes(random, {1, 2, 4});
  pins.at_most.vpp = sometimes(random, {2, 4});
  pins.at_most.dp = sometimes(random, {2, 4});
  pins.at_most.ep = sometimes(random, {1, 2});
  pins.at_most.zero_stage = sometimes(random, {0, 1, 2});
  if (random.one_in(4)) pins.sp = random.one_in(2);
  if (random.one_in(4)) pins.recompute = program::RecomputeKind::Full;
  return pins;
}

/// Bounds bound what is searched, a pin is taken as it is.
void check_degree(int value, std::optional<int> pin, std::optional<int> least,
                  std::optional<int> most) {
  if (pin) {
    CHECK(value == *pin);
    return;
  }
  CHECK(value >= least.value_or(value));
  CHECK(value <= most.value_or(value));
}

void check_pins(const program::Plan& plan, const Constraints& pins) {
  const program::ParallelConfig& p = plan.parallel;
  const DegreeBounds &low = pins.at_least, &high = pins.at_most;
  check_degree(p.tp, pins.tp, low.tp, high.tp);
  check_degree(p.pp, pins.pp, low.pp, high.pp);
  check_degree(p.vpp, pins.vpp, low.vpp, high.vpp);
  check_degree(p.dp, pins.dp, low.dp, high.dp);
  check_degree(p.ep, pins.ep, low.ep, high.ep);
  check_degree(plan.micro_batch_size, pins.micro_batch_size, low.micro_batch_size,
               high.micro_batch_size);
  check_degree(plan.zero_stage, pins.zero_stage, low.zero_stage, high.zero_stage);
  CHECK(p.sp == pins.sp.value_or(p.sp));
  CHECK(plan.recompute.kind == pins.recompute.value_or(plan.recompute.kind));
}

}  // namespace

TEST_CASE("More memory never gives a slower plan", "[planner][properties]") {
  testing::Random random(20261125);
  for (int i = 0; i < 10 * kRequests; ++i) {
    FakeWeights weights{.work_s = 1.0 + static_cast<double>(random.below(200)),
                        .tp_s = 0.01 * static_cast<double>(random.below(100)),
                        .dp_s = 0.01 * static_cast<double>(random.below(100)),
                        .recompute_full = 0.01 * static_cast<double>(random.below(50)),
                        .state_bytes = 100.0 + static_cast<double>(random.below(2000)),
                        .layer_bytes = 1.0 + static_cast<double>(random.below(30))};
    const SearchRequest request = small_request(any_of<int>(random, {1, 2, 4, 8}));
    double before = 1e300;
    weights.capacity_bytes = 50.0 + static_cast<double>(random.below(500));
    for (int more = 0; more < 3; ++more, weights.capacity_bytes *= 1.5) {
      const double now = fastest_s(search(request, fake_costs(weights), serial()));
      INFO("request " << i << " with " << weights.capacity_bytes << " bytes");
      CHECK(now <= before * (1 + 1e-12));
      before = now;
    }
  }
}

TEST_CASE("More memory of the device never gives a slower plan that was played",
          "[planner][properties]") {
  constexpr double kRunsDiffer = 0.01;  // which of two that are as fast is played depends on others
  testing::Random random(20261126);
  int without = 0;
  for (int i = 0; i < kRequests; ++i) {
    SearchRequest request = tiny_request(random);
    const SearchOutcome unbounded = search(request, cost_model(request), serial());
    const double peak_gib =
        std::get<SearchResult>(unbounded).ranked.front().step().peak_memory_bytes / (1 << 30);
    request.memory_reserve = 0;
    double before = 1e300;
    for (const double part : {0.9, 0.97, 1.01, 1.2, 10.0}) {
      request.cluster.device.memory_gib = part * peak_gib;
      const double now = fastest_s(search(request, cost_model(request), serial()));
      INFO("request " << i << ": " << request.model.name << " on " << request.cluster.num_ranks()
                      << " of " << request.cluster.name << ", " << part << " * " << peak_gib
                      << " GiB");
      CHECK(now <= before * (1 + kRunsDiffer));
      without += now == 1e300 ? 1 : 0;
      before = now;
    }
  }
  CHECK(without < 2 * kRequests);
}

TEST_CASE("Pins and bounds hold for every plan that is shown", "[planner][properties]") {
  testing::Random random(20261127);
  int shown = 0;
  for (int i = 0; i < 2 * kRequests; ++i) {
    SearchRequest request = tiny_request(random);
    request.constraints = random_pins(random);
    SearchOutcome outcome;
    try {
      outcome = search(request, cost_model(request), serial());
    } catch (const ConfigError&) {  // pins that cannot use all ranks
      continue;
    }
    INFO("request " << i);
    const auto* result = std::get_if<SearchResult>(&outcome);
    if (result == nullptr) continue;
    for (const RankedPlan& ranked : result->ranked) check_pins(ranked.plan, request.constraints);
    for (const Alternative& alternative : result->alternatives)
      if (alternative.plan) check_pins(alternative.plan->plan, request.constraints);
    shown += static_cast<int>(result->ranked.size());
  }
  CHECK(shown > 2 * kRequests);
}

}  // namespace meshplan::planner
