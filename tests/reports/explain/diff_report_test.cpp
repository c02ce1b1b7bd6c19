#include "reports/explain/diff_report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/units.hpp"

namespace meshplan::reports {
namespace {

using Catch::Matchers::Contains;
using sim::StepPart;

planner::PricedPlan priced(program::ParallelConfig parallel, double bubble, double gib) {
  planner::PricedPlan plan;
  plan.plan.model = models::load_preset("tiny-llama");
  plan.plan.workload = {.seq_len = 128, .global_batch_size = 16};
  plan.plan.parallel = parallel;
  plan.parts[StepPart::Ideal] = 4;
  plan.parts[StepPart::Products] = 4;
  plan.parts[StepPart::Bubble] = bubble;
  plan.step.step_time_s = 8 + bubble;
  plan.step.mfu = 4 / (8 + bubble);
  plan.step.peak_memory_bytes = gib * kGib;
  plan.step.capacity_bytes = 80 * kGib;
  for (int stage = 0; stage < parallel.pp; ++stage)
    plan.memory.push_back(
        {.stage = stage, .parts = {{"weights", gib * kGib}}, .capacity_bytes = 80 * kGib});
  return plan;
}

}  // namespace

TEST_CASE("two plans are shown side by side, and who wins", "[reports][diff]") {
  const planner::ComparedPlans compared =
      planner::compare(priced({.tp = 2, .pp = 2}, 2, 40), priced({.tp = 4}, 0, 60), true);
  CHECK(to_text(compared) ==
        "A  tp2 pp2 mbs1\n"
        "B  tp4 mbs1\n"
        "\n"
        "  setting      A  B\n"
        "  parallel.tp  2  4\n"
        "  parallel.pp  2  1\n"
        "\n"
        "  memory of stage         A         B      B - A\n"
        "  0                40.0 GiB  60.0 GiB  +20.0 GiB\n"
        "  1                40.0 GiB         -\n"
        "\n"
        "  where the time goes                  A       B    B - A\n"
        "  model FLOPs at the peak         4.00 s  4.00 s        0\n"
        "  matrix products below the peak  4.00 s  4.00 s        0\n"
        "  bubble                          2.00 s  0.0 us  -2.00 s\n"
        "  step time                       10.0 s  8.00 s  -2.00 s\n"
        "  MFU                             40.0 %  50.0 %\n"
        "  tokens/s                           205     256\n"
        "\n"
        "B is 2.00 s faster: 1.92 s more than the 80.0 ms below which it would be a tie\n");
  const auto json = nlohmann::json::parse(to_json(compared));
  double sum = 0;
  for (const auto& [part, seconds] : json.at("differences_s").items()) sum += seconds.get<double>();
  CHECK(sum == json.at("slower_by_s").get<double>());
}

TEST_CASE("plans that are alike, tie, or do not fit are said to", "[reports][diff]") {
  const planner::PricedPlan plan = priced({.tp = 2}, 2, 40);
  CHECK_THAT(to_text(planner::compare(plan, plan, true)),
             Contains("the plans say the same") && Contains("both take as long"));
  CHECK_THAT(to_text(planner::compare(plan, priced({.tp = 2}, 2.01, 40), true)),
             Contains("a tie: A is 10.0 ms faster, and differences below 100 ms cannot be told"));
  CHECK_THAT(to_text(planner::compare(plan, priced({.tp = 4}, 0, 90), true)),
             Contains("B does not fit: stage 0 needs 90.0 GiB > 80.0 GiB"));
  planner::PricedPlan twice = priced({.tp = 2}, 2, 40);
  twice.plan.workload.global_batch_size = 32;
  CHECK_THAT(
      to_text(planner::compare(plan, twice, true)),
      Contains("the plans do different work") && Contains("B is 5.00 s faster for A's tokens"));
}

}  // namespace meshplan::reports
