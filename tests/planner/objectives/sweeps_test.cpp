#include "planner/objectives/sweeps.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

SearchRequest small_gpt2() {
  SearchRequest request;
  request.model = models::load_preset("gpt2-124m");
  request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 8);
  request.workload = {.seq_len = 1024, .global_batch_size = 64, .precision = DType::BF16};
  request.constraints.at_most.pp = 2;
  return request;
}

double step_s(const std::optional<RankedPlan>& plan) {
  return plan ? plan->step_time_s() : 1e300;
}

}  // namespace

TEST_CASE("Numbers of devices are doubled up to the last", "[planner][sweeps]") {
  CHECK(device_counts(8, 64) == std::vector<int>{8, 16, 32, 64});
  CHECK(device_counts(8, 40) == std::vector<int>{8, 16, 32, 40});
  CHECK(device_counts(3, 3) == std::vector<int>{3});
  CHECK_THROWS_AS(device_counts(0, 4), ConfigError);
  CHECK_THROWS_AS(device_counts(8, 4), ConfigError);
}

TEST_CASE("More devices are never worse where some may stay unused", "[planner][sweeps]") {
  const DeviceSweep sweep =
      sweep_devices(small_gpt2(), {1, 2, 4, 7, 8, 16}, /*deadline_s=*/{}, serial());
  REQUIRE(sweep.fastest);
  REQUIRE(sweep.points.size() == 6);
  double best = 1e300;
  for (const DevicePoint& point : sweep.points) best = std::min(best, step_s(point.plan));
  CHECK(step_s(sweep.points[*sweep.fastest].plan) == best);
  CHECK_FALSE(sweep.points[3].plan);  // seven ranks divide neither heads nor layers nor batch
  CHECK_FALSE(sweep.points[3].reason.empty());
  REQUIRE(sweep.worth_having);
  CHECK(*sweep.worth_having <= *sweep.fastest);
  CHECK_FALSE(sweep.fewest_in_time);

  const double deadline = step_s(sweep.points[2].plan);
  const DeviceSweep again = sweep_devices(small_gpt2(), {1, 2, 4, 8}, deadline, serial());
  REQUIRE(again.fewest_in_time);
  CHECK(*again.fewest_in_time == 2);
}

TEST_CASE("Along the frontier memory falls and time rises", "[planner][sweeps]") {
  const std::vector<RankedPlan> frontier = memory_frontier(small_gpt2(), 4, serial());
  REQUIRE(frontier.size() >= 2);
  for (std::size_t i = 1; i < frontier.size(); ++i) {
    CHECK(frontier[i].step().peak_memory_bytes < frontier[i - 1].step().peak_memory_bytes);
    CHECK(frontier[i].step_time_s() > frontier[i - 1].step_time_s());
  }
}

TEST_CASE("What is a little longer than the longest sequence does not fit", "[planner][sweeps]") {
  SearchRequest request = small_gpt2();
  request.model = models::load_preset("llama3.2-1b");
  request.cluster = sim::with_ranks(request.cluster, 1);
  request.workload.global_batch_size = 1;
  request.workload.seq_len = 8192;
  const std::optional<LargestThatFits> longest = longest_sequence(request, serial());
  REQUIRE(longest);
  CHECK(longest->value % 1024 == 0);
  CHECK(longest->plan.plan.workload.seq_len == longest->value);
  request.workload.seq_len = longest->value + longest->value / 16 / 1024 * 1024 + 1024;
  CHECK(std::holds_alternative<InfeasibleResult>(search(request, cost_model(request), serial())));
}

TEST_CASE("Pins that no plan can have are refused, whatever the length", "[planner][sweeps]") {
  SearchRequest request = small_gpt2();
  request.constraints.tp = 3;  // of 8 ranks
  CHECK_THROWS_AS(longest_sequence(request, serial()), ConfigError);
}

TEST_CASE("Only layers that are alike are added", "[planner][sweeps]") {
  SearchRequest request = small_gpt2();
  request.model = models::load_preset("tiny-moe");
  CHECK_THROWS_AS(most_layers(request, serial()), ConfigError);
}

TEST_CASE("The grid of tp and pp holds the best plan of each", "[planner][sweeps]") {
  SearchRequest request = small_gpt2();
  const std::vector<DegreeCell> cells = degree_grid(request, serial());
  REQUIRE(cells.size() == 2 + 2 + 2 + 1);  // tp 1, 2, 4, 8 by pp 1, 2 with tp pp <= 8
  double best = 1e300;
  for (const DegreeCell& cell : cells) {
    CHECK(cell.pp <= 2);                             // a bound of the request
    CHECK(cell.plan.has_value() == (cell.tp <= 4));  // of 12 heads, which 8 does not divide
    CHECK(cell.plan.has_value() == cell.reason.empty());
    if (!cell.plan) continue;
    CHECK(cell.plan->plan.parallel.tp == cell.tp);
    CHECK(cell.plan->plan.parallel.pp == cell.pp);
    best = std::min(best, cell.plan->step_time_s());
  }
  request.top = 1;
  CostModel estimates = cost_model(request);
  estimates.simulate = {};
  const auto all = std::get<SearchResult>(search(request, estimates, serial()));
  CHECK(all.ranked.front().step_time_s() == Approx(best).epsilon(0.02));
}

}  // namespace meshplan::planner
