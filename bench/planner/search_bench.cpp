// How many plans are priced in a second, with full breakdown and memory: every plan of the space of
// a dense 70B on 1,024 GPUs that obeys the rules. "covered" counts the plans of
// the space that a whole search decides on (priced, or turned down by a rule), "priced" those that
// it prices.
#include <benchmark/benchmark.h>

#include "models/model_spec.hpp"
#include "planner/search/search.hpp"
#include "program/checks/check.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan {
namespace {

planner::SearchRequest request_70b() {
  planner::SearchRequest request;
  request.model = models::load_preset("llama3-70b");
  request.workload = {.seq_len = 8192, .global_batch_size = 1024, .precision = DType::BF16};
  request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 1024);
  return request;
}

std::vector<program::Plan> valid_plans(const planner::SearchRequest& request) {
  std::vector<program::Plan> plans;
  for (const planner::Candidate& candidate : planner::enumerate(
           request.model, request.workload,
           {request.cluster.num_ranks(), request.cluster.devices_per_node}, request.constraints)) {
    program::Plan plan = planner::make_plan(request, candidate);
    if (program::check(plan).empty()) plans.push_back(std::move(plan));
  }
  return plans;
}

void price_every_plan(benchmark::State& state, bool known) {
  const planner::SearchRequest request = request_70b();
  const std::vector<program::Plan> plans = valid_plans(request);
  sim::Estimator estimator(request.cluster);
  if (known)
    for (const program::Plan& plan : plans) estimator.estimate(plan);
  double priced = 0;
  for (auto _ : state) {
    if (!known) {
      state.PauseTiming();
      estimator = sim::Estimator(request.cluster);
      state.ResumeTiming();
    }
    for (const program::Plan& plan : plans) benchmark::DoNotOptimize(estimator.estimate(plan));
    priced += static_cast<double>(plans.size());
  }
  state.counters["plans"] = static_cast<double>(plans.size());
  state.counters["priced/s"] = benchmark::Counter(priced, benchmark::Counter::kIsRate);
}

/// Blocks and schedules are known: what one more plan costs.
void price_with_known_blocks(benchmark::State& state) {
  price_every_plan(state, true);
}
BENCHMARK(price_with_known_blocks)->Unit(benchmark::kMillisecond);

/// With lowering and pricing of all blocks, and all schedules.
void price_from_nothing(benchmark::State& state) {
  price_every_plan(state, false);
}
BENCHMARK(price_from_nothing)->Unit(benchmark::kMillisecond);

void search_whole_space(benchmark::State& state) {
  const planner::SearchRequest request = request_70b();
  planner::CostModel costs = planner::cost_model(request);
  costs.simulate = {};
  double covered = 0, priced = 0;
  costs.estimator = [&priced, make = costs.estimator] {
    return [&priced, estimate = make()](const program::Plan& plan, const sim::Wanted& wanted) {
      ++priced;
      return estimate(plan, wanted);
    };
  };
  for (auto _ : state) {
    const auto outcome = planner::search(request, costs, planner::serial());
    const auto& counts = std::get<planner::SearchResult>(outcome).counts;
    covered += static_cast<double>(counts.total + counts.refined);
  }
  state.counters["covered/s"] = benchmark::Counter(covered, benchmark::Counter::kIsRate);
  state.counters["priced/s"] = benchmark::Counter(priced, benchmark::Counter::kIsRate);
}
BENCHMARK(search_whole_space)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace meshplan
