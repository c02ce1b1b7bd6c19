// Replicas that take unequal numbers of sequences: losses, gradients and routing are those of one
// rank, whose step has no empty sequence.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "program/checks/check.hpp"
#include "runtime/parity/parity_check.hpp"
#include "runtime/parity/parity_models.hpp"
#include "runtime/parity/parity_precision.hpp"

namespace meshplan::test::parity_uneven {
namespace {

constexpr int kTwoSteps = 2;

struct Choice {
  ParallelConfig parallel;
  int micro_batch_size = 1;
  int zero_stage = 0;
  ScheduleKind schedule = ScheduleKind::OneFOneB;
  ContextMethod method = ContextMethod::AllGather;
};

/// 16 sequences, of which three replicas take 6, 5 and 5.
Plan base_of(const models::ModelSpec& model) {
  Plan plan = plan_on(model);
  plan.workload.global_batch_size = 16;
  plan.bucket_bytes = 16 << 10;
  return plan;
}

/// Recompute takes turns.
std::vector<Plan> plans_of(const Plan& base, const std::vector<Choice>& choices) {
  std::vector<Plan> plans;
  for (const Choice& choice : choices) {
    Plan plan = base;
    plan.parallel = choice.parallel;
    plan.micro_batch_size = choice.micro_batch_size;
    plan.zero_stage = choice.zero_stage;
    plan.schedule = choice.schedule;
    plan.context_parallel = choice.method;
    plan.recompute.kind = static_cast<RecomputeKind>(plans.size() % 3);
    plan.uneven_batch = true;
    for (const program::Violation& violation : check(plan)) FAIL(violation.message);
    REQUIRE(plan.empty_sequences() > 0);
    plans.push_back(plan);
  }
  return plans;
}

void check_parity(const Plan& base, const std::vector<Choice>& choices) {
  ParityJob job{.steps = kTwoSteps};
  check_plans(job, "uneven", base.model.name + " uneven", base, plans_of(base, choices), described);
}

/// Where the batch of 16 meets 3 replicas and micro-batches of 2, 5 and 7: 5 leaves one of them
/// with 5 + 1 sequences and two with 5 + 0, 7 the last with 2 of 7.
std::vector<Choice> sizes() {
  return {{{.dp = 3}},    {{.dp = 3}, 2}, {{.dp = 3}, 5}, {{.dp = 3}, 7},
          {{.dp = 5}, 2}, {{.dp = 7}},    {{}, 3}};
}

std::vector<Choice> axes() {
  return {{{.pp = 2, .dp = 3}},
          {{.tp = 2, .dp = 3}},
          {{.tp = 2, .dp = 3, .sp = true}, 2},
          {{.cp = 2, .dp = 3}, 2},
          {{.cp = 2, .dp = 3}, 1, 0, ScheduleKind::OneFOneB, ContextMethod::Ring},
          {{.cp = 2, .dp = 3}, 1, 0, ScheduleKind::OneFOneB, ContextMethod::Ulysses},
          {{.pp = 2, .dp = 3}, 2, 0, ScheduleKind::GPipe},
          {{.pp = 2, .dp = 3}, 1, 1, ScheduleKind::ZbH1},
          {{.pp = 2, .vpp = 2, .dp = 3}, 1, 1, ScheduleKind::Interleaved},
          {{.pp = 2, .vpp = 2, .dp = 3}, 1, 0, ScheduleKind::ZbV},
          {{.pp = 2, .vpp = 2, .dp = 3}, 2, 0, ScheduleKind::DualPipeV}};
}

std::vector<Choice> zero_stages() {
  return {{{.dp = 3}, 1, 1},
          {{.dp = 3}, 2, 2},
          {{.dp = 3}, 1, 3},
          {{.tp = 2, .dp = 3}, 1, 3},
          {{.cp = 2, .dp = 3}, 2, 3}};
}

}  // namespace

TEST_CASE("three replicas train 16 sequences as one rank does", "[parity][uneven]") {
  models::ModelSpec model = llama_style();
  model.num_layers = 4;
  check_parity(base_of(model), sizes());
  check_parity(base_of(model), axes());
  check_parity(base_of(model), zero_stages());
}

TEST_CASE("packed documents count once in an uneven batch", "[parity][uneven][documents]") {
  Plan base = base_of(llama_style());
  base.model.num_layers = 2;
  base.workload.seq_len = 32;
  base.workload.documents = {.packed = true, .end_of_document = 0};
  check_parity(base, {{{.dp = 3}, 2},
                      {{.dp = 3}, 1, 2},
                      {{.cp = 2, .dp = 3}, 2},
                      {{.cp = 2, .dp = 3}, 1, 0, ScheduleKind::OneFOneB, ContextMethod::Ring},
                      {{.pp = 2, .dp = 3}, 5}});
}

TEST_CASE("a classifier counts each sequence once in an uneven batch",
          "[parity][uneven][encoder]") {
  check_parity(base_of(bert_style()), {{{.dp = 3}, 2},
                                       {{.dp = 3}, 1, 3},
                                       {{.tp = 2, .dp = 3, .sp = true}},
                                       {{.pp = 2, .dp = 3}, 2}});
}

TEST_CASE("prediction modules count each sequence once in an uneven batch",
          "[parity][uneven][predictions]") {
  models::ModelSpec model = llama_style();
  model.mtp_layers = 1;
  model.mtp_loss_coefficient = 0.3;
  check_parity(base_of(model), {{{.dp = 3}, 2}, {{.dp = 3}, 1, 2}, {{.pp = 2, .dp = 3}}});
}

TEST_CASE("routers count no token of an empty sequence", "[parity][uneven][experts]") {
  const std::vector<Choice> choices = {{{.dp = 3}, 2},
                                       {{.tp = 2, .dp = 3, .sp = true}, 5},
                                       {{.pp = 2, .dp = 3}},
                                       {{.dp = 6, .ep = 2}},
                                       {{.tp = 2, .dp = 3, .ep = 2, .sp = true}, 2},
                                       {{.cp = 2, .dp = 3, .ep = 2}, 2},
                                       {{.cp = 2, .dp = 3}, 1, 1}};
  for (const models::ModelSpec& model :
       {balanced_style(), capacity_style(), deepseek_style(), gpt_oss_style()})
    check_parity(base_of(model), choices);
}

TEST_CASE("an indexer learns from no empty sequence", "[parity][uneven][sparse]") {
  check_parity(base_of(sparse_latent_style()), {{{.dp = 3}, 2},
                                                {{.dp = 3}, 5, 1},
                                                {{.tp = 2, .dp = 3, .sp = true}},
                                                {{.pp = 2, .dp = 3}, 2}});
}

TEST_CASE("an uneven batch scales fp16 losses and gradients as one rank does",
          "[parity][uneven][fp16]") {
  ParityJob job{.steps = kTwoSteps};
  Plan base = base_of(llama_style());
  base.workload.precision = DType::F16;
  const RunResult reference = job.run_alone(base);
  for (const Plan& plan : plans_of(base, {{{.dp = 3}, 2}, {{.dp = 3}, 1, 3}})) {
    const auto run = job.run(plan);
    if (!run) continue;
    const double tolerance = half_tolerance(plan);
    const GradientError error = compare_gradients(*run, reference, kSmallInHalf);
    INFO(described(plan) << ", worst gradient " << error.worst << " by " << error.relative);
    CHECK(error.relative <= tolerance);
    CHECK(error.small_absolute <= tolerance * kSmallInHalf);
    CHECK(run->losses.front() == Approx(reference.losses.front()).epsilon(0x1p-10));
  }
}

TEST_CASE("an empty sequence moves no scale of FP8", "[parity][uneven][fp8]") {
  // One replica takes 3 and 2 of 5 sequences, and two take 3 and 2 whose third is empty: the same
  // values in the same products, and one more row that repeats them.
  ParityJob job{.steps = 1};
  Plan plan = base_of(llama_style());
  plan.workload.seq_len = 64;
  plan.workload.global_batch_size = 5;
  program::set_precision(plan.workload, program::Precision::Fp8);
  plan.micro_batch_size = 3;
  plan.uneven_batch = true;
  REQUIRE(check(plan).empty());
  const RunResult padded = job.run_alone(plan);
  Plan alone = plan;
  alone.uneven_batch = false;
  alone.micro_batch_size = 1;
  const RunResult reference = job.run_alone(alone);
  const GradientError error = compare_gradients(padded, reference, kSmallInHalf);
  INFO("worst gradient " << error.worst << " by " << error.relative);
  CHECK(error.relative <= program::float8_tolerance(plan));
}

}  // namespace meshplan::test::parity_uneven
