#include "reports/explain/why_not_report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/units.hpp"

namespace meshplan::reports {
namespace {

using Catch::Matchers::Contains;
using planner::Answer;

planner::PricedPlan priced_in_parts(program::ParallelConfig parallel, double bubble, double gib) {
  planner::PricedPlan plan;
  plan.plan.model = models::load_preset("tiny-llama");
  plan.plan.workload = {.seq_len = 128, .global_batch_size = 16};
  plan.plan.parallel = parallel;
  plan.step.seconds[sim::Category::Forward] = 8;
  plan.step.seconds[sim::Category::Bubble] = bubble;
  plan.step.step_time_s = 8 + bubble;
  plan.step.mfu = 0.5;
  plan.step.peak_memory_bytes = gib * kGib;
  plan.step.capacity_bytes = 80 * kGib;
  plan.memory = {{.stage = 0,
                  .parts = {{"activations", 0.5 * gib * kGib},
                            {"weights", 0.25 * gib * kGib},
                            {"gradients", 0.125 * gib * kGib},
                            {"optimizer state", 0.0625 * gib * kGib},
                            {"workspace", 0.0625 * gib * kGib}},
                  .capacity_bytes = 80 * kGib}};
  return plan;
}

planner::WhyNot answer(const planner::PricedPlan& first, const planner::PricedPlan& other) {
  planner::WhyNot why{.changed = {.plan = other.plan}, .standing = standing_of(first, other, 0.05)};
  why.changed.asked = {{"tp", "2", "4"}};
  why.changed.followed = {{"dp", "4", "2"}};
  return why;
}

}  // namespace

TEST_CASE("a slower plan is shown with what it loses where", "[reports][why-not]") {
  const planner::PricedPlan first = priced_in_parts({.tp = 2, .dp = 4}, 0, 40);
  CHECK(to_text(answer(first, priced_in_parts({.tp = 4, .dp = 2}, 2, 20)), first, 0.05) ==
        "why not tp4 dp2 mbs1\n"
        "  changed  tp 2 -> 4\n"
        "  follows  dp 4 -> 2\n"
        "  given    tp2 dp4 mbs1: 8.00 s, MFU 50.0 %, 40.0 GiB of 80.0 GiB on stage 0\n"
        "  then     10.0 s, MFU 50.0 %, 20.0 GiB of 80.0 GiB on stage 0\n"
        "  answer   2.00 s (25.0 %) slower: bubble +2.00 s\n");
}

TEST_CASE("memory that lacks is shown with the stage and its largest parts", "[reports][why-not]") {
  const planner::PricedPlan first = priced_in_parts({.tp = 2, .dp = 4}, 1, 40);
  const auto text = [&](double gib) {
    return to_text(answer(first, priced_in_parts({.tp = 4, .dp = 2}, 0, gib)), first, 0.05);
  };
  CHECK_THAT(text(96),
             Contains("does not fit: stage 0 lacks 20.0 GiB (96.0 GiB > 76.0 GiB); it holds "
                      "activations 48.0 GiB, weights 24.0 GiB, gradients 12.0 GiB, optimizer "
                      "state 6.0 GiB, rest 6.0 GiB; if it fitted: 1.00 s (11.1 %) faster: "
                      "bubble -1.00 s"));
  CHECK_THAT(text(78),
             Contains("lacks 2.0 GiB (78.0 GiB > 76.0 GiB, only the 5 % that stay free)"));
}

TEST_CASE("broken rules, ties and the same plan have words of their own", "[reports][why-not]") {
  const planner::PricedPlan first = priced_in_parts({.tp = 2, .dp = 4}, 1, 40);
  planner::WhyNot why = answer(first, priced_in_parts({.tp = 4, .dp = 2}, 1.01, 40));
  CHECK(why.standing.answer == Answer::Tie);
  CHECK_THAT(to_text(why, first, 0.05), Contains("a tie: 10.0 ms (0.1 %) slower: bubble +10.0 ms; "
                                                 "differences below 90.0 ms cannot be told"));
  CHECK_THAT(to_text(answer(first, first), first, 0.05), Contains("answer   the same plan"));
  why.standing = {.answer = Answer::BreaksRule, .broken = {{"heads", "6 is not divisible"}}};
  CHECK_THAT(to_text(why, first, 0.05), Contains("breaks a rule: 6 is not divisible (heads)"));
  CHECK_THAT(to_text(why, priced_in_parts({.tp = 2, .dp = 4}, 1, 90), 0.05),
             Contains("does not fit beside the reserve itself"));
  const auto json = nlohmann::json::parse(to_json(why, first));
  CHECK(json.at("answer") == "breaks_a_rule");
  CHECK(json.at("broken_rules").at(0).at("rule") == "heads");
  CHECK(json.at("asked").at(0).at("after") == "4");
  CHECK_FALSE(json.contains("plan"));
}

}  // namespace meshplan::reports
