// The answer to "why not": what simulating the changed plan by hand says.
#include "planner/explain/why_not.hpp"

#include <catch2/catch.hpp>

#include "planner/explain/plans.hpp"
#include "planner/search/reasons.hpp"
#include "sim/engine/memory.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/estimator/estimator.hpp"

using Catch::Matchers::Contains;

namespace meshplan::planner {
namespace {}  // namespace

TEST_CASE("a slower plan loses what simulating both says", "[planner][why-not]") {
  const sim::Cluster cluster = h100s(16);
  const PricedOn on{cluster};
  const PricedPlan first = price(llama_on_two_nodes(), cluster);
  const WhyNot answer = why_not(first, "tp=8,pp=1", on);

  program::Plan by_hand = preset_plan("llama3-8b", {.tp = 8, .dp = 2, .sp = true}, 32, 4096);
  by_hand.zero_stage = 1;
  const sim::SimulatedStep one = sim::simulate_step(first.plan, cluster);
  const sim::SimulatedStep other = sim::simulate_step(by_hand, cluster);
  CHECK(answer.changed.plan == by_hand);
  CHECK(answer.standing.slower_by_s == other.step.step_time_s - one.step.step_time_s);
  CHECK(answer.standing.priced->step.peak_memory_bytes == other.step.peak_memory_bytes);
  const bool ties = std::abs(answer.standing.slower_by_s) <= answer.standing.told_apart_s;
  CHECK(answer.standing.told_apart_s >= sim::indistinguishable_s(one.terms, other.terms));
  CHECK(answer.standing.answer == (ties                              ? Answer::Tie
                                   : answer.standing.slower_by_s > 0 ? Answer::Slower
                                                                     : Answer::Faster));

  double parts = 0;
  for (const DifferencePart& part : difference_parts(first.step, answer.standing.priced->step))
    parts += part.seconds;
  CHECK(parts == Approx(answer.standing.slower_by_s));
}

TEST_CASE("the way back gains what the way there loses", "[planner][why-not]") {
  const sim::Cluster cluster = h100s(16);
  const PricedOn on{cluster};
  const PricedPlan first = price(llama_on_two_nodes(), cluster);
  const WhyNot there = why_not(first, "recompute=full", on);
  REQUIRE(there.standing.answer == Answer::Slower);
  CHECK(there.standing.slower_by_s > 0.1 * first.step.step_time_s);  // a forward more
  const WhyNot back = why_not(*there.standing.priced, "recompute=none", on);
  CHECK(back.standing.answer == Answer::Faster);
  CHECK(back.standing.slower_by_s == -there.standing.slower_by_s);
}

TEST_CASE("a broken rule is answered with the rule, and has no price", "[planner][why-not]") {
  const sim::Cluster cluster = h100s(16);
  const PricedOn on{cluster};
  const PricedPlan first = price(llama_on_two_nodes(), cluster);
  const WhyNot uneven = why_not(first, "dp=1,tp=16,pp=1,mbs=3", on);
  CHECK(uneven.standing.answer == Answer::BreaksRule);
  REQUIRE_FALSE(uneven.standing.broken.empty());
  CHECK(uneven.standing.broken.front().rule == "batch");
  CHECK_FALSE(uneven.standing.priced);
  CHECK(why_not(first, "tp=3", on).standing.broken.front().rule == "ranks");
}

TEST_CASE("a plan that does not fit lacks what its memory exceeds the device by",
          "[planner][why-not]") {
  const sim::Cluster cluster = h100s(8);
  const PricedOn on{cluster};
  program::Plan plan = preset_plan("llama3-8b", {.tp = 8, .sp = true}, 8, 8192);
  const PricedPlan first = price(plan, cluster);
  REQUIRE(first.step.fits(on.memory_reserve));
  const Standing standing = why_not(first, "tp=1", on).standing;
  REQUIRE(standing.answer == Answer::DoesNotFit);
  const StageMemoryParts& memory = fullest_stage(*standing.priced);
  CHECK(memory.total_bytes() == Approx(standing.priced->step.peak_memory_bytes));
  CHECK(standing.missing_bytes ==
        Approx(memory.total_bytes() - memory.capacity_bytes * (1 - on.memory_reserve)));
  // One rank holds 8 B parameters with 18 bytes each.
  CHECK(memory.total_bytes() > 8e9 * 18);
  for (std::size_t i = 1; i < memory.parts.size(); ++i)
    CHECK(memory.parts[i].bytes <= memory.parts[i - 1].bytes);
}

TEST_CASE("no change is the same plan", "[planner][why-not]") {
  const sim::Cluster cluster = h100s(16);
  const PricedOn on{cluster};
  PricedPlan first = price(llama_on_two_nodes(), cluster);
  first.plan.prediction = program::Prediction{.step_time_s = 1};
  CHECK(why_not(first, "tp=4", on).standing.answer == Answer::Same);
}

TEST_CASE("other software is answered by its estimates and its rules", "[planner][why-not]") {
  const std::string megatron = "megatron-core";
  const sim::Cluster cluster = h100s(16);
  const PricedOn on{cluster};
  const PricedPlan first = price(on_stack(llama_on_two_nodes(), megatron), cluster);
  sim::Estimator estimator(cluster, megatron);
  CHECK(first.step.step_time_s == estimator.estimate(first.plan).step_time_s);
  const Standing standing = why_not(first, "mbs=2", on).standing;
  CHECK(standing.priced->step.step_time_s ==
        estimator.estimate(change_choices(first.plan, "mbs=2").plan).step_time_s);
  const Standing refused = why_not(first, "schedule=zb-h1", on).standing;
  REQUIRE(refused.answer == Answer::BreaksRule);
  CHECK_THAT(refused.broken.front().message, Contains("megatron-core runs"));
}

}  // namespace meshplan::planner
