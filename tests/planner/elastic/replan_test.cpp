#include "planner/elastic/replan.hpp"

#include <catch2/catch.hpp>

#include "planner/explain/plans.hpp"
#include "planner/explain/priced_plan.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/stacks/stack_memory.hpp"

using Catch::Matchers::Contains;

namespace meshplan::planner {
namespace {

program::Plan small_plan(const program::ParallelConfig& parallel, std::int64_t global_batch) {
  program::Plan plan = preset_plan("gpt2-124m", parallel, global_batch, 256);
  plan.model.dropout = 0;
  return plan;
}

Replanned replanned(const program::Plan& plan, int ranks) {
  const ReplanOutcome outcome = replan({.plan = plan, .cluster = h100s(ranks)}, serial());
  if (const auto* none = std::get_if<NoReplan>(&outcome)) FAIL(none->reason);
  return std::get<Replanned>(outcome);
}

/// What a run computes does not change, and the plan runs on these ranks.
void check_goes_on(const program::Plan& before, const Replanned& now, int ranks) {
  CHECK(now.plan.workload == before.workload);
  CHECK(now.plan.model == before.model);
  CHECK(now.plan.frozen == before.frozen);
  CHECK(now.plan.parallel.world_size() == ranks);
  CHECK(broken_rules(now.plan).empty());
  const sim::StepPrediction step = sim::simulate_step(now.plan, h100s(ranks)).step;
  CHECK(now.step_time_s == Approx(step.step_time_s));
  CHECK(step.fits(sim::default_memory_reserve(now.plan.stack, now.plan.model)));
}

}  // namespace

TEST_CASE("After the loss of one of four replicas three take unequal shares of the batch",
          "[planner][elastic]") {
  program::Plan before = small_plan({.dp = 4}, 16);
  before.zero_stage = 2;
  const Replanned now = replanned(before, 3);
  check_goes_on(before, now, 3);
  INFO(now.change << "; " << now.reason);
  CHECK(now.only_dp);
  CHECK(now.plan.parallel.dp == 3);
  CHECK(now.plan.uneven_batch);
  CHECK_THAT(now.change, Contains("dp4") && Contains("dp3"));
  CHECK(now.plan.prediction);
}

TEST_CASE("A replica of several ranks that cannot be filled is given up", "[planner][elastic]") {
  const program::Plan before = small_plan({.tp = 2, .dp = 2, .sp = true}, 16);
  const Replanned now = replanned(before, 3);
  check_goes_on(before, now, 3);
  CHECK_FALSE(now.only_dp);
  CHECK_THAT(now.reason, Contains("2 ranks") && Contains("do not divide 3"));
}

TEST_CASE("With more ranks dp grows, too", "[planner][elastic]") {
  const program::Plan before = small_plan({.dp = 2}, 32);
  const Replanned now = replanned(before, 8);
  check_goes_on(before, now, 8);
}

TEST_CASE("A layout that is clearly slower than another is not kept for its dp",
          "[planner][elastic]") {
  // 4 stages of a small model with 4 micro-batches: mostly bubble.
  program::Plan before = small_plan({.pp = 4, .dp = 2}, 8);
  const Replanned now = replanned(before, 4);
  check_goes_on(before, now, 4);
  before.parallel.dp = 1;
  CHECK(now.step_time_s * 1.05 < sim::simulate_step(before, h100s(4)).step.step_time_s);
  CHECK_THAT(now.reason, Contains("faster than pp4"));
}

TEST_CASE("Routers are expected to load ranks of another layout as unevenly as before",
          "[planner][elastic]") {
  // With half of the replicas eight ranks no longer share the experts.
  program::Plan before = preset_plan("gpt-oss-120b", {.pp = 8, .dp = 8, .ep = 8}, 64, 4096);
  before.expected_expert_imbalance = 1.4;
  const Replanned now = replanned(before, 32);
  INFO(now.change);
  REQUIRE_FALSE(now.only_dp);
  REQUIRE(now.plan.parallel.ep > 1);
  CHECK(now.plan.expected_expert_imbalance == 1.4);
  check_goes_on(before, now, 32);
}

TEST_CASE("A slow rank gets fewer layers where that is faster", "[planner][elastic]") {
  const program::Plan before = preset_plan("llama3-8b", {.tp = 2, .pp = 4, .sp = true}, 64, 2048);
  sim::Cluster cluster = h100s(8);
  cluster.slow_ranks = {{.rank = 5, .times = 2}};
  const ReplanOutcome outcome =
      replan({.plan = before, .cluster = cluster, .worth = 1e9}, serial());  // no other layout
  REQUIRE(std::holds_alternative<Replanned>(outcome));
  const Replanned& now = std::get<Replanned>(outcome);
  INFO(now.change << "; " << now.reason);
  CHECK(now.only_dp);
  CHECK(now.plan.parallel == before.parallel);
  CHECK(now.plan.layers_per_stage == std::vector<int>{9, 9, 5, 9});
  CHECK_THAT(now.change, Contains("layers 9 9 5 9"));
  CHECK(broken_rules(now.plan).empty());
  CHECK(now.step_time_s == Approx(sim::simulate_step(now.plan, cluster).step.step_time_s));
  program::Plan even = now.plan;
  even.layers_per_stage.clear();
  CHECK(now.step_time_s < 0.8 * sim::simulate_step(even, cluster).step.step_time_s);

  const ReplanOutcome free = replan({.plan = before, .cluster = cluster}, serial());
  REQUIRE(std::holds_alternative<Replanned>(free));
  CHECK(std::get<Replanned>(free).step_time_s <= now.step_time_s);
}

TEST_CASE("What does not fit is said", "[planner][elastic]") {
  const program::Plan before = preset_plan("llama3-70b", {.tp = 8, .pp = 2, .sp = true}, 16, 8192);
  const ReplanOutcome outcome = replan({.plan = before, .cluster = h100s(1)}, serial());
  REQUIRE(std::holds_alternative<NoReplan>(outcome));
  CHECK_FALSE(std::get<NoReplan>(outcome).reason.empty());
}

}  // namespace meshplan::planner
