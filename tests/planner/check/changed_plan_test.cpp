// Plans at the edge of what `meshplan check` predicts and changes.
#include <catch2/catch.hpp>

#include "check/changes.hpp"
#include "planner/check/check.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plan_file/plan_settings.hpp"
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

/// Two stages, with what each has said of it.
CheckRequest request_of_listed_stages() {
  CheckRequest request = request_on(8);
  request.plan.layers_per_stage = {15, 17};
  request.plan.recompute = {.kind = program::RecomputeKind::Full, .layers_per_stage = {3, 5}};
  REQUIRE(program::check(request.plan).empty());
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
  const CheckRequest request = request_of_listed_stages();
  const program::Plan& plan = request.plan;
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

TEST_CASE("The settings of an offered change make the plan that was priced", "[planner][check]") {
  const CheckRequest request = request_of_listed_stages();
  const std::string text = program::to_json(request.plan);
  const CheckResult result = check_plan(request);
  int of_other_stages = 0;
  for (const auto* offered : {&result.fitting, &result.faster})
    for (const PricedChange& change : *offered) {
      INFO(change.words);
      const std::string changed_text =
          program::change_plan(text, "plan.json", change.settings).text;
      const program::Plan plan = program::parse_plan(changed_text, "plan.json");
      CHECK(program::differing_settings(plan, change.plan).empty());
      CHECK(plan.recompute == change.plan.recompute);
      of_other_stages += change.plan.parallel.pp != request.plan.parallel.pp;
    }
  CHECK(of_other_stages > 0);
}

}  // namespace meshplan::planner
