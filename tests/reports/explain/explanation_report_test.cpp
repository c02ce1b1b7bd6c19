#include "reports/explain/explanation_report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/units.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::reports {
namespace {

using sim::StepPart;

/// A step of 10 seconds, 4 of which its FLOPs need.
planner::PricedPlan ten_seconds() {
  planner::PricedPlan priced;
  priced.plan.model = models::load_preset("tiny-llama");
  priced.plan.workload = {.seq_len = 128, .global_batch_size = 16, .precision = DType::BF16};
  priced.plan.parallel = {.tp = 2, .pp = 2, .dp = 2};
  priced.parts[StepPart::Ideal] = 4;
  priced.parts[StepPart::Products] = 2;
  priced.parts[StepPart::Streams] = 1;
  priced.parts[StepPart::Tensor] = 0.5;
  priced.parts[StepPart::Bubble] = 2.4996;
  priced.parts[StepPart::Optimizer] = 0.0004;  // less than 0.005 % of the step
  priced.step.step_time_s = 10;
  priced.step.seconds[sim::Category::Forward] = 7;
  priced.step.seconds[sim::Category::Tp] = 0.5;
  priced.step.seconds[sim::Category::Bubble] = 2.5;
  priced.step.mfu = 0.4;
  priced.step.peak_memory_bytes = 60 * kGib;
  priced.step.capacity_bytes = 80 * kGib;
  priced.memory = {{.stage = 0,
                    .parts = {{"activations", 40 * kGib}, {"weights", 20 * kGib}},
                    .capacity_bytes = 80 * kGib}};
  return priced;
}

planner::Explanation explanation() {
  planner::Explanation explanation{.priced = ten_seconds()};
  explanation.priced.peak_flop_per_s = 989.4e12;
  explanation.memory_factor = 0.78125;
  explanation.sensitivities = {
      {"flops", -0.7}, {"memory_bandwidth", -0.05}, {"nvlink.latency", 0.001}};
  explanation.thumb.rule.reason = "nothing fits";
  planner::PricedPlan other = ten_seconds();
  other.plan.parallel = {.tp = 4, .dp = 2};
  other.step.step_time_s = 12;
  other.step.seconds[sim::Category::Bubble] = 0;
  other.step.seconds[sim::Category::Tp] = 5;
  planner::Rival rival{
      .standing = planner::standing_of(explanation.priced, other, 0.04),
      .plan = other.plan,
      .turning_points = {
          {"flops", std::nullopt}, {"nvlink.bandwidth", 1.8}, {"nvlink.latency", std::nullopt}}};
  explanation.rival = std::move(rival);
  return explanation;
}

}  // namespace

TEST_CASE("an explanation goes from the model's FLOPs to the step time", "[reports][explain]") {
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 8);
  CHECK(
      to_text(explanation(), {cluster, 0.04}) ==
      R"(model    tiny-llama  6.0 M parameters, 8 layers, hidden 256, 8 heads (4 kv), vocabulary 256
cluster  dgx-h100  8 x H100 SXM 80 GB: one node, nvlink 370.8 GB/s, infiniband-ndr 48 GB/s
step     16 sequences of 128 tokens (2.0 K tokens a step), bf16, adamw
plan     tp2 pp2 dp2 mbs1, 8 micro-batches

from the model's FLOPs to the step time (mean over all ranks)
                                      time    share  MFU so far
  model FLOPs at the peak           4.00 s   40.0 %     100.0 %
  matrix products below the peak    2.00 s   20.0 %      66.7 %
  memory-bound operations           1.00 s   10.0 %      57.1 %
  exposed tp, sp                    500 ms    5.0 %      53.3 %
  bubble                            2.50 s   25.0 %      40.0 %
  what is less than 0.01 % each   400.0 us    0.0 %      40.0 %
  step time                         10.0 s  100.0 %      40.0 %
MFU counts 3 forwards of the model, attention by the pairs that its mask leaves and nothing that is computed again
(Chowdhery et al. 2022, appendix B), over 8 ranks at a dense bf16 peak of 989.4 TFLOP/s

memory of stage 0: 60.0 GiB of 80.0 GiB with 4 % free: activations 40.0 GiB, weights 20.0 GiB
  fits, and still would with 0.781 times as much memory

what 10 % more of a figure does to the step time, as estimated (--set FIGURE=1.1)
  flops              -700 ms  -7.0 %
  memory_bandwidth  -50.0 ms  -0.5 %
  nvlink.latency     +1.0 ms  +0.0 %

against tp4 dp2 mbs1
  2.00 s (20.0 %) slower: exposed tp +4.50 s, bubble -2.50 s
  it would be as fast with nvlink.bandwidth x 1.8
  no factor from 1/8 to 8 makes it as fast for any of flops, nvlink.latency

rule of thumb  no plan: nothing fits
)");
}

TEST_CASE("the JSON of an explanation has the parts, and they sum", "[reports][explain]") {
  const auto json = nlohmann::json::parse(to_json(explanation()));
  double sum = 0;
  for (const auto& [name, seconds] : json.at("parts_s").items()) sum += seconds.get<double>();
  CHECK(sum == Approx(json.at("step_time_s").get<double>()));
  CHECK(json.at("seconds_of_10_percent").at("flops") == -0.7);
  CHECK(json.at("rule_of_thumb").at("reason") == "nothing fits");
  CHECK(json.at("against").at("answer") == "slower");
  CHECK(json.at("against").at("turning_points").at("nvlink.bandwidth") == 1.8);
  CHECK(json.at("against").at("turning_points").at("flops").is_null());
}

}  // namespace meshplan::reports
