#include "reports/search_report.hpp"

#include <catch2/catch.hpp>

#include "core/units.hpp"
#include "reports/search_json.hpp"
using namespace meshplan;
using namespace meshplan::reports;
using Catch::Matchers::Contains;

namespace {

planner::RankedPlan ranked(program::ParallelConfig parallel, double step_time_s) {
  planner::RankedPlan plan;
  plan.plan.model = models::load_preset("tiny-llama");
  plan.plan.workload = {.seq_len = 128, .global_batch_size = 8};
  plan.plan.parallel = parallel;
  plan.plan.prediction = {.step_time_s = step_time_s, .mfu = 0.5, .reasons = {"because"}};
  plan.estimate.step_time_s = step_time_s;
  plan.estimate.peak_memory_bytes = 3 * kGib;
  plan.estimate.capacity_bytes = 4 * kGib;
  return plan;
}

planner::SearchResult two_plans() {
  planner::SearchResult result;
  result.counts = {
      .total = 1234, .broke_a_rule = 1000, .did_not_fit = 232, .ranked = 2, .refined = 7};
  result.ranked = {ranked({.tp = 2}, 1.0), ranked({.dp = 2}, 1.5)};
  result.rejections = {{"tp=8", "heads", "num_heads (12) ...", 36}};
  result.alternatives = {{"tp=1", result.ranked[1], 0.5, "exposed dp +500 ms"},
                         {"dp=2", result.ranked[1], 0.5, "exposed dp +500 ms"},
                         {"tp=8", std::nullopt, 0, "num_heads (12) ..."}};
  return result;
}

}  // namespace

TEST_CASE("a search is shown as counts, ranking, why and why not", "[reports][search]") {
  CHECK(to_text(two_plans(), 0.25) ==
        "1,234 plans: 1,000 break a rule, 232 do not fit, 0 slower by a bound, 2 ranked (7 "
        "refined)   0.2 s\n"
        "\n"
        " #  plan      step time, estimated  80 % interval   slower     MFU   memory\n"
        " 1  tp2 mbs1                1.00 s                          50.0 %  3.0 GiB\n"
        " 2  dp2 mbs1                1.50 s                 +50.0 %  50.0 %  3.0 GiB\n"
        "\n"
        "why #1\n"
        "  because\n"
        "\n"
        "why not (the best plan with another choice; +: it takes longer than #1)\n"
        "  tp=1, dp=2  +500 ms  dp2 mbs1  exposed dp +500 ms\n"
        "\n"
        "rejected (plans, rule)\n"
        "  tp=8  36  heads  num_heads (12) ...\n");
}

TEST_CASE("nothing feasible names what is missing", "[reports][search]") {
  planner::InfeasibleResult result{.counts = {.total = 2, .did_not_fit = 2}};
  result.nearest_miss = ranked({.tp = 2}, 1.0);
  result.nearest_miss->estimate.peak_memory_bytes = 5.5 * kGib;
  CHECK_THAT(
      to_text(result, 0),
      Contains("nearest miss: tp2 mbs1 needs 5.5 GiB > 4.0 GiB on stage 0 (1.5 GiB too much)"));
  CHECK_THAT(to_json(result), Contains("\"feasible\": false"));
}

TEST_CASE("the JSON of a search holds whole plans", "[reports][search]") {
  const std::string text = to_json(planner::SearchOutcome(two_plans()));
  CHECK_THAT(text, Contains("\"feasible\": true") && Contains("\"broke_a_rule\": 1000") &&
                       Contains("\"layers_per_stage\"") && Contains("\"choice\": \"tp=8\""));
}

TEST_CASE("the header counts a published model", "[reports][search]") {
  // Llama 3 70B: 70.6 B parameters (Grattafiori et al. 2024, table 3, names it 70B).
  CHECK(model_line(models::load_preset("llama3-70b")) ==
        "llama3-70b  70.6 B parameters, 80 layers, hidden 8192, 64 heads (8 kv), vocabulary "
        "128,256");
  CHECK(workload_line({.seq_len = 8192, .global_batch_size = 1024, .precision = DType::BF16}) ==
        "1,024 sequences of 8,192 tokens (8.4 M tokens a step), bf16, adamw");
}
