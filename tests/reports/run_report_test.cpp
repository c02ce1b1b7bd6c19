#include "reports/run_report.hpp"

#include <catch2/catch.hpp>

#include "core/json_fields.hpp"
#include "program/plans.hpp"

namespace meshplan::test {
namespace {

using Catch::Contains;

sim::Cluster cpu_cluster() {
  sim::Cluster cluster;
  cluster.name = "here";
  cluster.num_nodes = 2;
  cluster.cores_per_host = 2;
  cluster.device = {.kind = sim::DeviceKind::Cpu, .peak_tflop_per_s = {{"fp32", 0.5}}};
  return cluster;
}

}  // namespace

TEST_CASE("MFU's peak is that of the ranks, and on CPUs of no more than the cores",
          "[reports][watch]") {
  program::Plan plan;
  plan.parallel = {.tp = 2};
  sim::Cluster cluster = cpu_cluster();
  CHECK(reports::peak_of(plan, cluster).job_flop_per_s == Approx(1e12));
  CHECK_THAT(reports::peak_of(plan, cluster).source, Contains("data sheet") && Contains("2 ranks"));
  plan.parallel = {.tp = 8};
  CHECK(reports::peak_of(plan, cluster).job_flop_per_s == Approx(2e12));
  cluster.operators.emplace_back();
  CHECK_THAT(reports::peak_of(plan, cluster).source,
             Contains("4 cores (of 8 ranks)") && Contains("fastest product measured"));
  cluster.device.kind = sim::DeviceKind::Gpu;
  CHECK(reports::peak_of(plan, cluster).job_flop_per_s == Approx(4e12));
}

TEST_CASE("a row holds a step's figures, and none for an unknown MFU", "[reports][watch]") {
  program::StepReport step{.step = 12,
                           .loss = 2.5,
                           .gradient_norm = 1.25,
                           .learning_rate = 1e-3,
                           .seconds = 0.5,
                           .tokens_per_s = 1024,
                           .samples_per_s = 4,
                           .resident_bytes = 3 << 20};
  CHECK(
      reports::step_line(step) ==
      "    12    2.5000     1.250  1.00e-03      500.0       1,024       4.0       -       3.0\n");
  step.mfu = 0.375;
  step.evaluation_loss = 2.75;
  CHECK_THAT(reports::step_line(step), Contains("37.5 %") && Contains("held-out loss 2.7500"));
  step.experts = {.balance_loss = 0.0125,
                  .layers = {{.layer = 0, .mean = 2, .max = 3, .ep_imbalance = 1.25},
                             {.layer = 1, .mean = 2, .max = 5, .dropped_share = 0.125}}};
  CHECK_THAT(reports::step_line(step),
             Contains("busiest expert 2.50 x mean (layer 1)   ep rank 1.25 x (layer 0)   dropped "
                      "12.5 % (layer 1)   balance loss 0.0125") &&
                 !Contains("z-loss") && !Contains("beyond the plan"));
  step.experts->beyond_plan = {
      .layer_visits = 3, .bytes = 12.25 * 1024 * 1024, .largest_imbalance = 2.6};
  const char* beyond =
      "expert rows beyond the plan: 3 layer visits, 12.2 MiB more, largest imbalance 2.60";
  CHECK_THAT(reports::step_line(step), Contains(beyond));
  reports::RunSummary summary;
  summary.trace.plan.model = program::test::llama_style();
  summary.trace.plan.workload = {.seq_len = 8, .global_batch_size = 1};
  summary.trace.step_times_s = {1};
  summary.experts = step.experts;
  CHECK_THAT(reports::to_text(summary),
             Contains("ep imbalance  1.125 (mean over layers") && Contains(beyond));
}

TEST_CASE("a run's file has the gradient norm of every step, and none of a skipped one",
          "[reports][watch]") {
  reports::RunSummary summary;
  summary.trace.plan.model = program::test::llama_style();
  summary.trace.plan.workload = {.seq_len = 8, .global_batch_size = 1};
  summary.trace.step_times_s = {1, 1};
  summary.trace.losses = {5, 4};
  summary.gradient_norms = {std::nullopt, 1.5};
  const Json written = Json::parse(reports::to_json(summary));
  CHECK(written.at("gradient_norms") == Json::array({nullptr, 1.5}));
}

TEST_CASE("a header says with which settings the optimizer trains", "[reports][watch]") {
  reports::RunHeader header;
  header.plan.model = program::test::llama_style();
  program::OptimizerConfig& optimizer = header.plan.workload.optimizer;
  const char* defaults =
      "\nadamw  lr 0.0003, cosine to 3e-05 at the run's last step  betas 0.9, 0.95  epsilon 1e-08  "
      "weight decay 0.1  clip 1\n";
  CHECK_THAT(reports::to_text(header), Contains(defaults));
  optimizer = {.kind = program::OptimizerKind::Sgd,
               .learning_rate = 0.5,
               .weight_decay = 0,
               .clip_norm = 0,
               .warmup_steps = 10,
               .decay_steps = 90};
  CHECK(reports::optimizer_line(optimizer) ==
        "sgd  lr 0.5 after 10 steps of warm-up, cosine to 0.05 at step 90  momentum 0.9  weight "
        "decay 0  no clipping");
  optimizer.schedule = program::LearningRateSchedule::Constant;
  CHECK_THAT(reports::optimizer_line(optimizer), Contains("warm-up, constant  momentum"));
}

TEST_CASE("a header says what MFU divides by, or that nothing is known", "[reports][watch]") {
  reports::RunHeader header;
  header.plan.model = program::test::llama_style();
  CHECK_THAT(reports::to_text(header), Contains("no peak is known"));
  header.peak = {.job_flop_per_s = 2e12, .source = "somewhere"};
  CHECK_THAT(reports::to_text(header), Contains("MFU is of 2 TFLOP/s: somewhere"));
}

TEST_CASE("the log's first line holds seed and optimizer", "[reports][watch]") {
  reports::RunHeader header{.seed = 7, .num_steps = 20, .evaluate_every = 5};
  header.plan.model = program::test::llama_style();
  header.plan.workload.global_batch_size = 1;
  header.plan.workload.seq_len = 16;
  header.plan.workload.optimizer.weight_decay = 0.25;
  header.plan.workload.optimizer.warmup_steps = 3;
  const Json line = Json::parse(reports::to_json_line(header));
  CHECK(line.at("seed") == 7);
  CHECK(line.at("steps") == 20);
  CHECK(line.at("evaluate_every") == 5);
  CHECK(line.at("optimizer").at("kind") == "adamw");
  CHECK(line.at("optimizer").at("weight_decay") == 0.25);
  CHECK(line.at("optimizer").at("warmup_steps") == 3);
}

TEST_CASE("the timing of a run shows phases, groups, buckets and balance", "[reports][watch]") {
  program::StepTiming timing;
  timing.phases_s["forward"] = {0.001, 0.002, 0.003, 1};
  timing.phases_s["recompute"] = {};
  timing.communication["dp-cp"].exposed_s = {0, 0.0005, 0.001, 3};
  for (int bucket = 0; bucket < 8; ++bucket)
    timing.buckets.push_back({.bucket = bucket, .bytes = 1 << 20, .seconds = {0, 0, 0.1, 0}});
  timing.busy_share = {0.5, 0.625, 0.75, 0};
  timing.rank_balance = 0.875;
  reports::RunSummary summary;
  summary.trace.plan.model = program::test::llama_style();
  summary.trace.plan.workload.global_batch_size = 1;
  summary.trace.plan.workload.seq_len = 16;
  summary.trace.step_times_s = {0.1, 0.1};
  summary.timing = timing;
  const std::string text = reports::to_text(summary);
  CHECK_THAT(text, Contains("forward  1.000  2.000  3.000        1") && Contains("dp-cp") &&
                       Contains("(2 more)") && Contains("busy 62.5 %") &&
                       Contains("balance of ranks 0.875, of stages 1.000"));
  CHECK_THAT(text, !Contains("recompute"));
}

}  // namespace meshplan::test
