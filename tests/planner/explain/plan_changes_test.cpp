#include "planner/explain/plan_changes.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "planner/explain/plans.hpp"
#include "planner/search/space.hpp"
#include "sim/stacks/software.hpp"

using Catch::Matchers::Contains;

namespace meshplan::planner {
namespace {

std::string described(const ChangedChoices& changed) {
  return describe(candidate_of(changed.plan));
}

}  // namespace

TEST_CASE("dp takes the ranks that other degrees leave", "[planner][why-not]") {
  const ChangedChoices changed = change_choices(llama_on_two_nodes(), "tp=8,pp=1");
  CHECK(described(changed) == "tp8 sp dp2 mbs1 zero1");
  CHECK(changed.plan.parallel.world_size() == 16);
  CHECK(changed.asked == std::vector<ChoiceChange>{{"tp", "4", "8"}, {"pp", "2", "1"}});
  CHECK(changed.followed.empty());  // dp stays 2
  CHECK(change_choices(llama_on_two_nodes(), "tp=2").followed ==
        std::vector<ChoiceChange>{{"dp", "2", "4"}});
}

TEST_CASE("degrees that leave ranks over are a broken rule, with the nearest that do not",
          "[planner][why-not]") {
  const auto broken = change_choices(llama_on_two_nodes(), "tp=3").broken;
  REQUIRE(broken);
  CHECK(broken->rule == "ranks");
  CHECK_THAT(broken->message,
             Contains("does not divide the 16 ranks") && Contains("nearest tp: 2"));
  const auto twice = change_choices(llama_on_two_nodes(), "tp=8,dp=2").broken;
  REQUIRE(twice);
  CHECK_THAT(twice->message, Contains("nearest dp: 1"));
}

TEST_CASE("chunks and schedules stay as long as stages allow it", "[planner][why-not]") {
  program::Plan plan = preset_plan("llama3-8b", {.pp = 4, .vpp = 4, .dp = 4}, 64, 4096);
  plan.schedule = program::ScheduleKind::Interleaved;
  CHECK(described(change_choices(plan, "mbs=2")) == "pp4 vpp4 dp4 mbs2 interleaved");
  CHECK(described(change_choices(plan, "pp=2")) == "pp2 vpp4 dp8 mbs1 interleaved");
  CHECK(described(change_choices(plan, "pp=1")) == "dp16 mbs1");
  CHECK(described(change_choices(plan, "schedule=1f1b")) == "pp4 dp4 mbs1");
  CHECK(described(change_choices(plan, "schedule=zb-v")) == "pp4 vpp2 dp4 mbs1 zb-v");
  CHECK(described(change_choices(plan, "vpp=1")) == "pp4 dp4 mbs1");
  plan = llama_on_two_nodes();
  CHECK(described(change_choices(plan, "vpp=2")) == "tp4 sp pp2 vpp2 dp2 mbs1 interleaved zero1");
  CHECK(described(change_choices(plan, "schedule=interleaved")) ==
        "tp4 sp pp2 vpp2 dp2 mbs1 interleaved zero1");
}

TEST_CASE("recompute may name modules", "[planner][why-not][recompute]") {
  program::Plan plan = llama_on_two_nodes();
  const ChangedChoices changed = change_choices(plan, "recompute=mlp+norms");
  CHECK(changed.plan.recompute ==
        program::Recompute{.kind = program::RecomputeKind::Selective,
                           .modules = {models::Module::Norms, models::Module::Mlp}});
  CHECK(changed.asked == std::vector<ChoiceChange>{{"recompute", "none", "norms+mlp"}});
  plan.recompute = {
      .kind = program::RecomputeKind::Selective, .num_layers = 2, .modules = {models::Module::Mlp}};
  CHECK(change_choices(plan, "mbs=2").plan.recompute == plan.recompute);
  CHECK(change_choices(plan, "recompute=selective").plan.recompute ==
        program::Recompute{.kind = program::RecomputeKind::Selective});
  CHECK_THROWS_WITH(change_choices(plan, "recompute=mpl"),
                    Contains("recompute=mpl") && Contains("mlp"));
}

TEST_CASE("what has nothing to act on goes", "[planner][why-not]") {
  program::Plan plan = llama_on_two_nodes();
  CHECK_FALSE(change_choices(plan, "tp=1").plan.parallel.sp);
  const ChangedChoices alone = change_choices(plan, "tp=8,pp=2");
  CHECK(alone.plan.zero_stage == 0);
  CHECK(alone.followed == std::vector<ChoiceChange>{{"dp", "2", "1"}, {"zero", "1", "0"}});
  plan.layers_per_stage = {15, 17};
  CHECK(change_choices(plan, "pp=4").plan.layers_per_stage.empty());
  CHECK(change_choices(plan, "tp=2").plan.layers_per_stage == std::vector{15, 17});
  CHECK(change_choices(plan, "layers_per_stage=14,18,tp=2").plan.layers_per_stage ==
        std::vector{14, 18});
  plan.recompute = {.kind = program::RecomputeKind::Full, .num_layers = 3};
  CHECK_FALSE(change_choices(plan, "recompute=selective").plan.recompute.num_layers);
  CHECK(change_choices(plan, "mbs=2").plan.recompute.num_layers == 3);
}

TEST_CASE("experts need sp beside tp, so it comes with it", "[planner][why-not]") {
  const program::Plan plan = preset_plan("tiny-moe", {.dp = 8, .ep = 2}, 16, 128);
  CHECK(described(change_choices(plan, "tp=2")) == "tp2 sp dp4 ep2 mbs1");
  CHECK_FALSE(change_choices(plan, "tp=2,sp=off").plan.parallel.sp);
}

TEST_CASE("a bucket of the default size stays one", "[planner][why-not]") {
  program::Plan plan = preset_plan("llama3-8b", {.tp = 1, .dp = 64}, 64, 4096);
  CHECK(plan.bucket_bytes == 64 << 20);
  CHECK(change_choices(plan, "tp=2").plan.bucket_bytes == 32 << 20);
  plan.bucket_bytes = 7 << 20;
  CHECK(change_choices(plan, "tp=2").plan.bucket_bytes == 7 << 20);
}

TEST_CASE("choices have the names of flags and files, too", "[planner][why-not]") {
  const program::Plan plan = llama_on_two_nodes();
  CHECK(change_choices(plan, "micro-batch=2").plan == change_choices(plan, "mbs=2").plan);
  CHECK(change_choices(plan, "no-sp zero_stage=0").plan ==
        change_choices(plan, "sp=off,zero=0").plan);
  CHECK_FALSE(change_choices(plan, "no-sp").plan.parallel.sp);
}

TEST_CASE("what is no choice, or no value of one, is named with the nearest",
          "[planner][why-not]") {
  const program::Plan plan = llama_on_two_nodes();
  CHECK_THROWS_WITH(change_choices(plan, "zeroo=1"), Contains("did you mean 'zero'?"));
  CHECK_THROWS_WITH(change_choices(plan, "tp=eight"), Contains("tp=eight: expected an integer"));
  CHECK_THROWS_WITH(change_choices(plan, "tp=99999999999"), Contains("expected an integer from 1"));
  CHECK_THROWS_WITH(change_choices(plan, "recompute=ful"), Contains("did you mean 'full'?"));
  CHECK_THROWS_WITH(change_choices(plan, "sp=maybe"), Contains("on or off"));
  CHECK_THROWS_WITH(change_choices(plan, "tp"), Contains("CHOICE=VALUE"));
  CHECK_THROWS_WITH(change_choices(plan, ""), Contains("no changes are given"));
  CHECK_THROWS_WITH(change_choices(plan, ",,"), Contains("no changes are given"));
  CHECK_THROWS_AS(change_choices(plan, "order=tp-dp"), ConfigError);
}

TEST_CASE("sequences are divided in a way that the plan's stack has", "[planner][why-not]") {
  program::Plan plan = llama_on_two_nodes();
  plan.stack.software = "megatron-core";
  const ChangedChoices ring = change_choices(plan, "cp=2");
  CHECK(ring.plan.context_parallel == program::ContextMethod::Ring);
  CHECK(sim::software_violations(ring.plan).empty());
  CHECK(change_choices(plan, "cp=2,context_parallel=all_gather").plan.context_parallel ==
        program::ContextMethod::AllGather);
}

}  // namespace meshplan::planner
