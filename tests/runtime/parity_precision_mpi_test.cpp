// Parity in 16-bit precisions, and that a step whose fp16 gradients overflow leaves no trace.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <iostream>

#include "core/hash.hpp"
#include "runtime/parity_precision.hpp"
#include "runtime/parity_techniques.hpp"

namespace meshplan::test {
namespace {

std::vector<Plan> half_plans(const models::ModelSpec& model, DType precision) {
  std::vector<Plan> plans;
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tp = 2}, ParallelConfig{.tp = 4}, ParallelConfig{.tp = 2, .sp = true},
        ParallelConfig{.pp = 2}, ParallelConfig{.pp = 4}, ParallelConfig{.dp = 2},
        ParallelConfig{.dp = 8}, ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .sp = true}}) {
    Plan plan = base_plan(model);
    plan.workload.precision = precision;
    plan.parallel = parallel;
    plan.schedule = plans.size() % 2 == 0 ? ScheduleKind::OneFOneB : ScheduleKind::GPipe;
    if (parallel.pp == 1) plan.schedule = ScheduleKind::OneFOneB;
    plan.recompute.kind = static_cast<RecomputeKind>(plans.size() % 3);
    plans.push_back(plan);
  }
  return plans;
}

void check_half_parity(const models::ModelSpec& model, DType precision) {
  Fixture fixture;
  Plan plan = base_plan(model);
  const RunResult fp32 = fixture.run_alone(plan);
  plan.workload.precision = precision;
  const RunResult reference = fixture.run_alone(plan);
  double worst = 0;
  const std::vector<Plan> plans = half_plans(model, precision);
  for (const std::size_t i : plans_to_run(plans)) {
    const Plan& one = plans[i];
    const auto run = fixture.run(one);
    if (!run) continue;
    const double tolerance = half_tolerance(precision, model, one.parallel.tp);
    const GradientError error = compare_gradients(*run, reference, kSmallInHalf);
    const GradientError to_fp32 = compare_gradients(*run, fp32, kSmallInHalf);
    worst = std::max(worst, error.relative / tolerance);
    if (fixture.world->rank() == 0) record_parity("precision", one, error.relative);
    INFO(model.name << " in " << name_of(precision) << ": " << describe(one) << ", worst gradient "
                    << error.worst << " by " << error.relative << ", against fp32 " << to_fp32.worst
                    << " by " << to_fp32.relative << ", tolerance " << tolerance);
    CHECK(error.relative <= tolerance);
    CHECK(error.small_absolute <= tolerance * kSmallInHalf);
    CHECK(to_fp32.relative <= tolerance);
    CHECK(run->gradient_norms.front() == Approx(fp32.gradient_norms.front()).epsilon(tolerance));
    // The loss of untrained weights: logits below 1 in magnitude, averaged over 128 tokens.
    CHECK(run->losses.front() ==
          Approx(reference.losses.front()).epsilon(unit_roundoff(precision)));
    CHECK(run->losses.back() < run->losses.front());
  }
  if (fixture.world->rank() == 0)
    std::cout << fmt::format("{} in {}: worst gradient error {:.2f} of the tolerance\n", model.name,
                             name_of(precision), worst);
}

}  // namespace

TEST_CASE("in bf16 plans give the gradients of one rank, to the format's precision", "[parity]") {
  check_half_parity(llama_style(), DType::BF16);
  check_half_parity(gpt2_style(), DType::BF16);
}

TEST_CASE("in fp16 plans give the gradients of one rank, to the format's precision", "[parity]") {
  check_half_parity(llama_style(), DType::F16);
  check_half_parity(gpt2_style(), DType::F16);
}

namespace {

struct DividedCase {
  models::ModelSpec model;
  ParallelConfig parallel;
  int zero_stage = 0;
  int shard_group = 0;
  program::ContextMethod method = program::ContextMethod::AllGather;
};

/// What divides state or sequences, in fp16 with a scaled loss.
std::vector<DividedCase> divided_cases() {
  using program::ContextMethod;
  return {{llama_style(), {.dp = 4}, 1},
          {llama_style(), {.dp = 4}, 2},
          {llama_style(), {.dp = 4}, 3},
          {llama_style(), {.dp = 4}, 3, 2},
          {gpt2_style(), {.tp = 2, .pp = 2, .dp = 2, .sp = true}, 2},
          {llama_style(), {.cp = 2}},
          {llama_style(), {.cp = 2, .dp = 2}, 3, 0, ContextMethod::Ring},
          {llama_style(), {.cp = 2, .pp = 2, .dp = 2}, 1, 0, ContextMethod::Ulysses}};
}

Plan plan_of(const DividedCase& one) {
  Plan plan = base_plan(one.model);
  plan.workload.precision = DType::F16;
  plan.parallel = one.parallel;
  plan.zero_stage = one.zero_stage;
  plan.zero_shard_group = one.shard_group;
  plan.context_parallel = one.method;
  return plan;
}

std::string describe(const DividedCase& one) {
  return fmt::format("{} {} zero {}/{}", one.model.name, to_string(one.parallel), one.zero_stage,
                     one.shard_group);
}

}  // namespace

TEST_CASE("fp16 with ZeRO and cp gives the gradients of one rank", "[parity]") {
  Fixture fixture;
  for (const DividedCase& one : divided_cases()) {
    Plan alone = plan_of(one);
    alone.parallel = {};
    alone.zero_stage = alone.zero_shard_group = 0;
    const RunResult reference = fixture.run_alone(alone);
    const auto run = fixture.run(plan_of(one));
    if (!run) continue;
    const double tolerance = half_tolerance(DType::F16, one.model, one.parallel.tp);
    const GradientError error = compare_gradients(*run, reference, kSmallInHalf);
    INFO(describe(one) << ", worst gradient " << error.worst << " by " << error.relative
                       << ", tolerance " << tolerance);
    CHECK(error.relative <= tolerance);
    CHECK(error.small_absolute <= tolerance * kSmallInHalf);
    CHECK(run->losses.front() ==
          Approx(reference.losses.front()).epsilon(unit_roundoff(DType::F16)));
    CHECK(run->losses.back() < run->losses.front());
  }
}

namespace {

std::uint64_t state_of(const runtime::Trainer& trainer) {
  std::uint64_t hash = 0;
  for (const program::Region region : {program::Region::Weights, program::Region::MasterWeights,
                                       program::Region::Moment1, program::Region::Moment2}) {
    // With ZeRO a step begins with gathers of the weights that others own.
    if (region == program::Region::Weights && trainer.program().plan.zero_stage > 0) continue;
    const auto bytes = trainer.program().memory.regions[static_cast<std::size_t>(region)].bytes();
    hash = content_hash(std::span(trainer.arena().region(region), static_cast<std::size_t>(bytes)),
                        hash + 1);
  }
  return hash;
}

}  // namespace

TEST_CASE("every rank skips a step whose fp16 gradients overflow", "[parity]") {
  Fixture fixture;
  std::vector<DividedCase> cases = {{llama_style(), {.tp = 2, .pp = 2, .dp = 2}},
                                    {llama_style(), {.dp = 8}}};
  // The others on all ranks of the job.
  for (DividedCase one : divided_cases()) {
    one.parallel.dp *= fixture.world->size() / one.parallel.world_size();
    cases.push_back(one);
  }
  for (const DividedCase& one : cases) {
    INFO(describe(one));
    const Plan plan = plan_of(one);
    runtime::HostDevice device(*fixture.backend);
    runtime::Trainer trainer(program::lower(plan, runtime::stage_of(plan, fixture.world->rank())),
                             std::nullopt, *fixture.world, device, 7, nullptr);
    const runtime::StepBatch batch = parity_batch(plan, trainer.groups().coordinates());
    const std::uint64_t before = state_of(trainer);
    const runtime::StepOutcome overflown = trainer.train_step(
        batch, {.optimizer_step = 1, .learning_rate = 1e-2, .loss_scale = 0x1p40});
    CHECK_FALSE(std::isfinite(overflown.gradient_norm));
    CHECK(std::isfinite(overflown.loss));
    CHECK(state_of(trainer) == before);
    const runtime::StepOutcome fine = trainer.train_step(
        batch, {.optimizer_step = 1, .learning_rate = 1e-2, .loss_scale = 0x1p16});
    CHECK(std::isfinite(fine.gradient_norm));
    CHECK(fine.loss == overflown.loss);
    CHECK(state_of(trainer) != before);
  }
}

}  // namespace meshplan::test
