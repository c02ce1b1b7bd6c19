// Mixtures of experts whose routers send ranks more rows than the plan has buffers for: steps make
// room, and give what they give with buffers that are large enough, bit for bit.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "program/checks/check.hpp"
#include "runtime/parity/parity_job.hpp"
#include "runtime/parity/parity_models.hpp"

namespace meshplan::test::parity_expert_room {
namespace {

constexpr int kSteps = 2;

struct Case {
  models::ModelSpec model;
  ParallelConfig parallel;
  ScheduleKind schedule = ScheduleKind::OneFOneB;
  RecomputeKind recompute = RecomputeKind::None;
  int zero_stage = 0;
  DType precision = DType::F32;
  bool progress_thread = false;
  std::vector<std::string> frozen = {};
  int node_ranks = 0;
};

Plan plan_of(const Case& one) {
  Plan plan = parity_plan(one.model, one.parallel);
  plan.model.num_layers = std::max(one.model.num_layers, one.parallel.pp * one.parallel.vpp);
  plan.bucket_bytes = 16 << 10;
  plan.schedule = one.schedule;
  plan.recompute.kind = one.recompute;
  plan.zero_stage = one.zero_stage;
  plan.workload.precision = one.precision;
  plan.progress_thread = one.progress_thread;
  plan.frozen = one.frozen;
  plan.expert_node_ranks = one.node_ranks;
  return plan;
}

std::string describe(const Plan& plan) {
  return fmt::format("{}: {} schedule {} recompute {} zero {} {}{}", plan.model.name,
                     to_string(plan.parallel), static_cast<int>(plan.schedule),
                     static_cast<int>(plan.recompute.kind), plan.zero_stage,
                     name_of(plan.workload.precision), plan.progress_thread ? " progress" : "");
}

/// Adds values of all ranks of the job, those that did not run included.
double sum_over_ranks(ParityJob& job, double value) {
  const runtime::MutableBuffer buffer{&value, 1, DType::F64};
  job.world->all_reduce(buffer, buffer, runtime::ReduceOp::Sum).wait();
  return value;
}

double visits_beyond_plan(ParityJob& job, const std::optional<RunResult>& run) {
  double visits = 0;
  if (run)
    for (const program::RowsBeyondPlan& step : run->rows_beyond_plan) visits += step.layer_visits;
  return sum_over_ranks(job, visits);
}

void check_same_bits(const RunResult& run, const RunResult& reference) {
  CHECK(run.losses == reference.losses);
  CHECK(run.gradient_norms == reference.gradient_norms);
  CHECK(run.expert_loads == reference.expert_loads);
  CHECK(run.gradients == reference.gradients);
  CHECK(run.weights == reference.weights);
  CHECK(run.weights_hash == reference.weights_hash);
}

/// Buffers are those of a balanced router, which no step of these models keeps to.
void check_room(const std::vector<Case>& cases) {
  ParityJob job{.steps = kSteps};
  for (const Case& one : cases) {
    Plan plan = plan_of(one);
    INFO(describe(plan));
    REQUIRE(program::check(plan).empty());
    const auto large = job.run(plan);
    CHECK(visits_beyond_plan(job, large) == 0);
    plan.expert_imbalance = 1;
    const auto small = job.run(plan);
    CHECK(visits_beyond_plan(job, small) > 0);
    if (small) check_same_bits(*small, *large);
  }
}

}  // namespace

TEST_CASE("rows beyond the plan's buffers change no bit, whatever is recomputed",
          "[parity][experts][room]") {
  const ParallelConfig two{.dp = 2, .ep = 2};
  check_room({
      {.model = mixtral_style(), .parallel = two},
      {.model = mixtral_style(), .parallel = two, .recompute = RecomputeKind::Selective},
      {.model = mixtral_style(), .parallel = two, .recompute = RecomputeKind::Full},
      {.model = deepseek_style(), .parallel = two, .recompute = RecomputeKind::Full},
      {.model = gpt_oss_style(), .parallel = two},
      {.model = balanced_style(), .parallel = two},
  });
}

TEST_CASE("rows beyond the plan's buffers change no bit under etp, tp, ZeRO and bf16",
          "[parity][experts][room]") {
  check_room({
      {.model = mixtral_style(), .parallel = {.dp = 4, .ep = 4}},
      {.model = mixtral_style(), .parallel = {.dp = 4, .ep = 2, .etp = 2}},
      {.model = gpt_oss_style(),
       .parallel = {.tp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true},
       .recompute = RecomputeKind::Full},
      {.model = shared_experts_style(), .parallel = {.tp = 2, .ep = 2, .sp = true}},
      {.model = mixtral_style(), .parallel = {.dp = 4, .ep = 2}, .zero_stage = 1},
      {.model = mixtral_style(),
       .parallel = {.dp = 4, .ep = 2},
       .recompute = RecomputeKind::Full,
       .zero_stage = 3},
      {.model = gpt_oss_style(), .parallel = {.dp = 4, .ep = 2}, .precision = DType::BF16},
      {.model = mixtral_style(), .parallel = {.dp = 4, .ep = 4}, .progress_thread = true},
  });
}

TEST_CASE("rows beyond the plan's buffers change no bit in any pipeline",
          "[parity][experts][room]") {
  const ParallelConfig stages{.pp = 2, .dp = 2, .ep = 2};
  const ParallelConfig chunks{.pp = 2, .vpp = 2, .dp = 2, .ep = 2};
  check_room({
      {.model = mixtral_style(), .parallel = stages, .recompute = RecomputeKind::Full},
      {.model = mixtral_style(), .parallel = stages, .schedule = ScheduleKind::GPipe},
      {.model = deepseek_style(), .parallel = stages, .schedule = ScheduleKind::ZbH1},
      {.model = mixtral_style(),
       .parallel = stages,
       .schedule = ScheduleKind::ZbH1,
       .recompute = RecomputeKind::Selective,
       .precision = DType::BF16},
      {.model = mixtral_style(), .parallel = chunks, .schedule = ScheduleKind::Interleaved},
      {.model = mixtral_style(),
       .parallel = chunks,
       .schedule = ScheduleKind::OverlappedOneFOneB,
       .recompute = RecomputeKind::Full},
      {.model = deepseek_style(), .parallel = stages, .schedule = ScheduleKind::OverlappedOneFOneB},
      {.model = mixtral_style(), .parallel = chunks, .schedule = ScheduleKind::ZbV},
      {.model = gpt_oss_style(), .parallel = chunks, .schedule = ScheduleKind::DualPipeV},
      {.model = gpt_oss_style(),
       .parallel = stages,
       .schedule = ScheduleKind::ZbH1,
       .frozen = {"layers.*.mlp.experts.*weight"}},
  });
}

TEST_CASE("rows beyond the plan's buffers change no bit where tokens travel by node",
          "[parity][experts][room][by_node]") {
  const ParallelConfig four{.dp = 4, .ep = 4};
  check_room({
      {.model = mixtral_style(), .parallel = four, .node_ranks = 2},
      {.model = deepseek_style(),
       .parallel = four,
       .schedule = ScheduleKind::OverlappedOneFOneB,
       .node_ranks = 2},
      {.model = gpt_oss_style(),
       .parallel = four,
       .recompute = RecomputeKind::Full,
       .precision = DType::BF16,
       .node_ranks = 2},
      {.model = deepseek_style(),
       .parallel = four,
       .recompute = RecomputeKind::Selective,
       .zero_stage = 3,
       .node_ranks = 2},
      {.model = mixtral_style(),
       .parallel = {.tp = 2, .dp = 2, .ep = 4, .sp = true},
       .progress_thread = true,
       .node_ranks = 2},
  });
}

TEST_CASE("room for rows goes with the steps that need it", "[parity][experts][room]") {
  ParityJob job{.steps = 1};
  Plan plan = plan_of({.model = mixtral_style(), .parallel = {.dp = 4, .ep = 4}});
  plan.expert_imbalance = 1;
  program::RowsBeyondPlan first;
  program::RowsBeyondPlan second;
  {
    runtime::HostDevice device(*job.backend);
    runtime::Trainer trainer(program::lower(plan, 0),
                             program::lower(plan, 0, program::Pass::ForwardOnly), *job.world,
                             device, /*seed=*/7, nullptr);
    const auto batch = parity_batch(plan, trainer.groups().coordinates());
    first = trainer.train_step(batch, {}).rows_beyond_plan;
    const double before = trainer.evaluate(batch);
    // A learning rate of 0: the same rows again, and so the same room.
    second = trainer.train_step(batch, {.optimizer_step = 2}).rows_beyond_plan;
    CHECK(trainer.evaluate(batch) == before);
  }
  CHECK(second == first);
  CHECK((first.bytes > 0) == (first.layer_visits > 0));
  CHECK((first.largest_imbalance > 1) == (first.layer_visits > 0));
  CHECK(first.largest_imbalance <= plan.parallel.ep);
  CHECK(first.layer_visits <= plan.model.num_layers * plan.num_microbatches());
  CHECK(sum_over_ranks(job, first.layer_visits) > 0);
}

}  // namespace meshplan::test::parity_expert_room
