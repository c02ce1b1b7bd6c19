// Plans at the edge of what `meshplan check` predicts and changes.
#include <catch2/catch.hpp>

#include "check/changes.hpp"
#include "planner/check/check.hpp"
#include "program/checks/check.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

CheckRequest request_on(int ranks) {
  CheckRequest request;
  request.plan.model = models::load_preset("llama3-8b");
  request.plan.parallel = {.tp = 1, .pp = 2, .dp = 4};
  request.plan.workload = {.seq_len = 4096, .global_batch_size = 64, .precision = DType::BF16};
  request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), ranks);
  return request;
}

}  // namespace

TEST_CASE("A plan is predicted on a cluster of as many ranks alone", "[planner][check]") {
  CHECK(check_plan(request_on(8)).not_predicted.empty());
  const CheckResult larger = check_plan(request_on(16));
  CHECK(larger.not_predicted == "the plan has 8 ranks, and its cluster 16");
  CHECK(larger.stages.empty());
}

TEST_CASE("A plan with other stages keeps no lists of stages", "[planner][check]") {
  CheckRequest request = request_on(8);
  program::Plan& plan = request.plan;
  plan.layers_per_stage = {15, 17};
  plan.recompute = {.kind = program::RecomputeKind::Full, .layers_per_stage = {3, 5}};
  REQUIRE(program::check(plan).empty());
  int of_other_stages = 0;
  for (const Change& change : changes_of(plan, *request.cluster)) {
    const program::Plan other = changed(plan, change);
    if (other.parallel.pp * other.parallel.vpp == 2) continue;
    INFO(change.words);
    CHECK(other.layers_per_stage.empty());
    CHECK(other.recompute.layers_per_stage.empty());
    ++of_other_stages;
  }
  CHECK(of_other_stages > 3);
}

}  // namespace meshplan::planner
