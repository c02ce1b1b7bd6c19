// Plans on other training stacks: the same run, and so the same number, as a row of a published
// table; and refusals of what a stack does not have.
#include "sim/stacks/software.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "models/model_spec.hpp"
#include "program/checks/check.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/fit/published_table.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/run_cases.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

/// Llama 3 70B over 64 H100s, as published: tp4 cp2 pp4 vpp5 dp2, 128 sequences of 8192 in bf16.
constexpr const char* kPublished =
    "id,family,suite,source,cluster,software,model,layers,hidden,ffn_hidden,heads,kv_heads,"
    "head_dim,vocab,activation,experts,topk,moe_ffn_hidden,shared_expert_ffn,arch_notes,seq_len,"
    "num_gpus,tp,pp,vpp,cp,ep,etp,dp,zero_stage,sequence_parallel,micro_batch_size,"
    "global_batch_size,precision,recompute,attention,overlap,switches,step_time_s,"
    "step_time_basis,peak_mem_gib,peak_mem_kind,notes\n"
    "a,a,hopper-bf16,,dgx-h100,megatron-core,,80,8192,28672,64,8,128,128256,swiglu,,,,,,8192,"
    "64,4,4,5,2,1,,2,1,yes,1,128,bf16,none,flash,dp+tp+p2p,,,,,,\n";

program::Plan published_plan() {
  program::Plan plan;
  plan.model = models::load_preset("llama3-70b");
  plan.workload.seq_len = 8192;
  plan.workload.global_batch_size = 128;
  plan.workload.precision = DType::BF16;
  plan.parallel = {.tp = 4, .cp = 2, .pp = 4, .vpp = 5, .dp = 2, .sp = true};
  plan.schedule = program::ScheduleKind::Interleaved;
  plan.context_parallel = program::ContextMethod::Ring;
  plan.zero_stage = 1;
  return plan;
}

std::vector<std::string> broken(const program::Plan& plan, const std::string& software) {
  std::vector<std::string> rules;
  for (const program::Violation& violation : software_violations(program::on_stack(plan, software)))
    rules.push_back(violation.rule);
  return rules;
}

}  // namespace

TEST_CASE("A plan and a published row of one configuration are one prediction", "[sim][software]") {
  const Constants constants = constants_of(fitted_constants());
  const std::vector<PublishedRow> rows = parse_published_table(kPublished, "published.csv");
  REQUIRE(rows.size() == 1);
  REQUIRE(rows.front().error.empty());
  const RunPrediction row = PreparedRun(rows.front().run).predict(constants);

  const program::Plan plan = published_plan();
  REQUIRE(broken(plan, "megatron-core").empty());
  const Cluster cluster = with_ranks(load_data_sheet("dgx-h100"), 64);
  const RunPrediction own =
      PreparedRun(run_of(on_stack(plan, "megatron-core"), cluster.name), cluster)
          .predict(constants);
  CHECK(own.step_time_s == row.step_time_s);
  CHECK(own.memory == row.memory);
  const StepPrediction estimate =
      Estimator(cluster, "megatron-core").estimate(on_stack(plan, "megatron-core"));
  CHECK(estimate.step_time_s == row.step_time_s);
  CHECK(estimate.peak_memory_bytes == row.memory.allocated() + row.memory.context);
  CHECK(estimate.seconds.total() == Approx(estimate.step_time_s));
  for (const double seconds : estimate.seconds.seconds) CHECK(seconds >= 0);
}

TEST_CASE("What is fitted to our kernels is no part of other software's predictions",
          "[sim][software]") {
  const Cluster preset = with_ranks(load_cluster_preset("dgx-h100"), 64);
  const Cluster sheet = with_ranks(load_data_sheet("dgx-h100"), 64);
  REQUIRE(preset != sheet);
  CHECK(data_sheet_of(preset) == sheet);
  CHECK(data_sheet_of(parse_cluster(to_json(preset), "cluster.json")) == sheet);
  CHECK(data_sheet_of(sheet) == sheet);
  Cluster measured = preset;
  measured.device.efficiency.gemm *= 0.9;
  CHECK(data_sheet_of(measured) == measured);

  const program::Plan plan = published_plan();
  CHECK(Estimator(preset, "megatron-core").estimate(on_stack(plan, "megatron-core")).step_time_s ==
        Estimator(sheet, "megatron-core").estimate(on_stack(plan, "megatron-core")).step_time_s);
  const Cluster several = joined({with_ranks(load_cluster_preset("dgx-h100"), 32),
                                  with_ranks(load_cluster_preset("dgx-a100"), 32)});
  CHECK_THROWS_WITH(Estimator(several, "megatron-core").estimate(on_stack(plan, "megatron-core")),
                    Catch::Contains("nodes of several types"));
}

TEST_CASE("Software is asked only for what it has", "[sim][software]") {
  program::Plan plan = published_plan();
  plan.schedule = program::ScheduleKind::ZbH1;
  plan.parallel.vpp = 1;
  CHECK(broken(plan, "megatron-core") == std::vector<std::string>{"software.schedule"});
  CHECK(broken(plan, "meshplan").empty());
  CHECK(software_violations(on_stack(plan, "megatron-core")).front().message ==
        "schedule 'zb-h1': megatron-core runs 1f1b or interleaved");

  plan = published_plan();
  plan.zero_stage = 3;
  CHECK(broken(plan, "megatron-core") == std::vector<std::string>{"software.zero"});
  CHECK(broken(plan, "torchtitan").empty());
  CHECK(broken(plan, "fms-fsdp-2024") ==
        std::vector<std::string>{"software.tp", "software.pp", "software.cp", "software.zero"});

  plan = published_plan();
  plan.layers_per_stage.assign(20, 4);
  CHECK(broken(plan, "megatron-core").empty());
  CHECK(predict(run_of(on_stack(plan, "megatron-core"), "dgx-h100")) ==
        predict(run_of(on_stack(published_plan(), "megatron-core"),
                       "dgx-h100")));  // the same, said aloud
  plan.parallel.vpp = 1;
  plan.schedule = program::ScheduleKind::OneFOneB;
  plan.layers_per_stage = {22, 20, 20, 18};
  CHECK(broken(plan, "nanotron") == std::vector<std::string>{"software.layers_per_stage"});
  CHECK(run_of(on_stack(plan, "megatron-core"), "dgx-h100").layout.front() ==
        program::LayoutStage{.embedding = true, .layers = 22});

  plan = published_plan();  // 20 stages' chunks of 4 layers
  plan.recompute = {.kind = program::RecomputeKind::Full, .num_layers = 3};
  CHECK(broken(plan, "megatron-core").empty());
  CHECK(broken(plan, "nanotron") ==
        std::vector<std::string>{"software.schedule", "software.recompute"});
  plan.recompute.num_layers = 4;  // all
  CHECK(broken(plan, "nanotron") == std::vector<std::string>{"software.schedule"});
  CHECK_THROWS_WITH(run_of(on_stack(plan, "megatron-cor"), "dgx-h100"),
                    Catch::Contains("did you mean 'megatron-core'"));
}

TEST_CASE("Without a pipeline other software has no schedule", "[sim][software]") {
  program::Plan plan = published_plan();
  plan.parallel = {.tp = 4, .cp = 1, .pp = 1, .vpp = 1, .dp = 16, .sp = true};
  plan.schedule = program::ScheduleKind::OneFOneB;
  const RunPrediction expected = predict(run_of(on_stack(plan, "megatron-core"), "dgx-h100"));
  for (const auto kind :
       {program::ScheduleKind::GPipe, program::ScheduleKind::ZbV, program::ScheduleKind::DualPipeV,
        program::ScheduleKind::OverlappedOneFOneB, program::ScheduleKind::Custom}) {
    plan.schedule = kind;
    CHECK(predict(run_of(on_stack(plan, "megatron-core"), "dgx-h100")) == expected);
  }
}

TEST_CASE("A pipeline's schedule counts in the time and memory of other software",
          "[sim][software]") {
  program::Plan plan = published_plan();
  plan.parallel = {.tp = 4, .cp = 1, .pp = 4, .vpp = 1, .dp = 4, .sp = true};
  plan.zero_stage = 3;
  plan.schedule = program::ScheduleKind::OneFOneB;
  plan.stack.software = "torchtitan";
  const Cluster cluster = with_ranks(load_data_sheet("dgx-h100"), 64);
  Estimator estimator(cluster, "torchtitan");
  const StepPrediction one = estimator.estimate(plan);
  plan.schedule = program::ScheduleKind::GPipe;
  const StepPrediction gpipe = estimator.estimate(plan);
  CHECK(gpipe.step_time_s == Approx(one.step_time_s).epsilon(0.02));
  CHECK(gpipe.peak_memory_bytes > 2 * one.peak_memory_bytes);
}

}  // namespace meshplan::sim
