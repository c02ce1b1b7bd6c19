// Soft caps, norms behind the sums, and encoders with a classifier: any plan gives the losses,
// gradients and gradient norm of one rank.
#include <catch2/catch.hpp>

#include "program/checks/check.hpp"
#include "runtime/parity/parity_check.hpp"
#include "runtime/parity/parity_precision.hpp"

namespace meshplan::test::parity_encoders {
namespace {

constexpr int kTwoSteps = 2;

/// Every axis, with sequence parallelism, split backwards, chunks and ZeRO; recompute and
/// micro-batch size take turns.
std::vector<Plan> plans_of(const models::ModelSpec& model) {
  const PlanShape shapes[] = {
      {{.tp = 2}},
      {{.tp = 2, .sp = true}},
      {{.tp = 4, .dp = 2, .sp = true}, ScheduleKind::OneFOneB, 1},
      {{.dp = 4}, ScheduleKind::OneFOneB, 2},
      {{.tp = 2, .dp = 2}, ScheduleKind::OneFOneB, 3},
      {{.pp = 2, .dp = 2}, ScheduleKind::GPipe},
      {{.pp = 4}, ScheduleKind::ZbH1},
      {{.tp = 2, .pp = 2, .sp = true}, ScheduleKind::ZbH1},
      {{.tp = 2, .pp = 2, .vpp = 2, .dp = 2, .sp = true}, ScheduleKind::Interleaved},
      {{.pp = 2, .vpp = 2}, ScheduleKind::ZbV},
      {{.tp = 2, .pp = 2, .vpp = 2}, ScheduleKind::DualPipeV},
  };
  std::vector<Plan> plans;
  for (const PlanShape& shape : shapes) {
    const Plan plan = plan_of_shape(model, shape, plans.size());
    INFO(described(plan));
    REQUIRE(check(plan).empty());
    plans.push_back(plan);
  }
  return plans;
}

/// The methods of context parallelism, alone and beside tp; a ring has no sliding window.
std::vector<Plan> context_plans_of(const models::ModelSpec& model) {
  std::vector<Plan> plans;
  for (const ContextMethod method :
       {ContextMethod::AllGather, ContextMethod::Ring, ContextMethod::Ulysses})
    for (const ParallelConfig& parallel :
         {ParallelConfig{.cp = 2, .pp = 2}, ParallelConfig{.tp = 2, .cp = 2, .sp = true}}) {
      Plan plan = plan_on(model, parallel);
      plan.context_parallel = method;
      if (check(plan).empty()) plans.push_back(plan);
    }
  return plans;
}

void check_parity(const models::ModelSpec& model, const std::vector<Plan>& plans) {
  ParityJob job{.steps = kTwoSteps};
  check_plans(job, "encoders", model.name, plan_on(model), plans, described);
}

}  // namespace

TEST_CASE("every plan of a model with soft caps gives the gradients of one rank",
          "[parity][softcap]") {
  check_parity(gemma2_style(), plans_of(gemma2_style()));
  models::ModelSpec full = gemma2_style();  // what a ring can do
  full.layer_pattern.clear();
  full.window = 0;
  for (const models::ModelSpec& model : {gemma2_style(), full}) {
    const std::vector<Plan> plans = context_plans_of(model);
    CHECK(plans.size() >= 4);
    check_parity(model, plans);
  }
}

TEST_CASE("every plan of a decoder with norms behind the sums gives the gradients of one rank",
          "[parity][post_norm]") {
  check_parity(post_norm_style(), plans_of(post_norm_style()));
  check_parity(post_norm_style(), context_plans_of(post_norm_style()));
}

TEST_CASE("every plan of a classifier of sequences gives the gradients of one rank",
          "[parity][encoder]") {
  check_parity(bert_style(), plans_of(bert_style()));
}

TEST_CASE(
    "in bf16 soft caps and encoders give the gradients of one rank, to the format's precision",
    "[parity][bf16]") {
  ParityJob job{.steps = kTwoSteps};
  for (const models::ModelSpec& model : {gemma2_style(), bert_style()}) {
    Plan base = plan_on(model);
    base.workload.precision = DType::BF16;
    const RunResult reference = job.run_alone(base);
    for (const ParallelConfig& parallel :
         {ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .sp = true}, ParallelConfig{.dp = 4}}) {
      Plan plan = base;
      plan.parallel = parallel;
      plan.zero_stage = parallel.pp == 1 ? 3 : 0;
      const auto run = job.run(plan);
      if (!run) continue;
      const double tolerance = half_tolerance(plan);
      const GradientError error = compare_gradients(*run, reference, kSmallInHalf);
      INFO(described(plan) << ", worst gradient " << error.worst << " by " << error.relative);
      CHECK(error.relative <= tolerance);
      CHECK(error.small_absolute <= tolerance * kSmallInHalf);
      CHECK(run->losses.front() == Approx(reference.losses.front()).epsilon(0x1p-8));
    }
  }
}

}  // namespace meshplan::test::parity_encoders
