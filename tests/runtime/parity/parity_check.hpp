// What every suite of plans in fp32 is held to.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "program/checks/check.hpp"
#include "runtime/parity/parity_job.hpp"
#include "runtime/parity/parity_techniques.hpp"

namespace meshplan::test {

/// Two orders of the same sums in fp32.
inline bool agrees(const RunResult& run, const RunResult& reference) {
  const GradientError error = compare_gradients(run, reference);
  return run.expert_loads == reference.expert_loads && error.relative <= 1e-5 &&
         error.small_absolute <= 1e-11 && scalar_error(run, reference) <= 1e-5;
}

/// Losses, gradients, gradient norm and routing of the plans, all or a quick run's, are those of
/// `base` on one rank. Prints the worst error and records it under `suite`.
/// @param describe  a plan, in words for a failure
template <class Describe>
void check_plans(ParityJob& job, std::string_view suite, const std::string& title, const Plan& base,
                 const std::vector<Plan>& plans, const Describe& describe) {
  const RunResult reference = job.run_alone(base);
  REQUIRE(reference.losses.back() < reference.losses.front());
  double worst = 0;
  const std::vector<std::size_t> chosen = plans_to_run(plans);
  for (const std::size_t i : chosen) {
    const Plan& plan = plans[i];
    const auto run = job.run(plan);
    if (!run) continue;
    const GradientError error = compare_gradients(*run, reference);
    worst = std::max(worst, error.relative);
    if (job.world->rank() == 0) record_parity(suite, plan, error.relative);
    INFO(describe(plan) << ", worst gradient " << error.worst);
    CHECK(run->expert_loads == reference.expert_loads);
    CHECK(error.relative <= 1e-5);
    CHECK(error.small_absolute <= 1e-11);
    CHECK(scalar_error(*run, reference) <= 1e-5);
  }
  if (job.world->rank() == 0)
    std::cout << fmt::format("{}: {} plans, worst relative gradient error {:.2e}\n", title,
                             chosen.size(), worst);
}

/// Plain descent: the second step then has the first one's rounding. (Adam divides by the gradients
/// themselves: where norms stand behind both halves many are tiny, and mostly rounding.)
inline Plan plan_on(const models::ModelSpec& model, const ParallelConfig& parallel = {}) {
  Plan plan = parity_plan(model, parallel);
  plan.workload.optimizer.kind = program::OptimizerKind::Sgd;
  plan.workload.optimizer.learning_rate = 0.05;
  return plan;
}

inline std::string described(const Plan& plan) {
  return fmt::format("{} {} mbs{} schedule {} zero {} recompute {} cp method {}", plan.model.name,
                     to_string(plan.parallel), plan.micro_batch_size,
                     static_cast<int>(plan.schedule), plan.zero_stage,
                     static_cast<int>(plan.recompute.kind),
                     static_cast<int>(plan.context_parallel));
}

struct PlanShape {
  ParallelConfig parallel;
  ScheduleKind schedule = ScheduleKind::OneFOneB;
  int zero_stage = 0;
};

/// Recompute and micro-batch size take turns. @param number  of the plan in its suite
inline Plan plan_of_shape(const models::ModelSpec& model, const PlanShape& shape,
                          std::size_t number) {
  Plan plan = plan_on(model, shape.parallel);
  plan.schedule = shape.schedule;
  plan.zero_stage = shape.zero_stage;
  plan.micro_batch_size = number % 2 == 0 && shape.parallel.dp < 4 ? 2 : 1;
  plan.recompute.kind = static_cast<RecomputeKind>(number % 3);
  return plan;
}

/// Every axis that the parts allow, split backwards, chunks and ZeRO; recompute and micro-batch
/// size take turns. What does not fit the model (a stage without a layer) is left out.
inline std::vector<Plan> plans_on_every_axis(const models::ModelSpec& model) {
  std::vector<PlanShape> shapes = {
      {{.tp = 2}},
      {{.tp = 2, .sp = true}},
      {{.tp = 4, .dp = 2, .sp = true}, ScheduleKind::OneFOneB, 1},
      {{.dp = 4}, ScheduleKind::OneFOneB, 2},
      {{.tp = 2, .dp = 2}, ScheduleKind::OneFOneB, 3},
      {{.pp = 2, .dp = 2}, ScheduleKind::GPipe},
      {{.tp = 2, .pp = 2, .sp = true}, ScheduleKind::ZbH1},
      {{.pp = 2, .vpp = 2}, ScheduleKind::ZbV},
      {{.tp = 2, .pp = 2, .vpp = 2}, ScheduleKind::DualPipeV},
  };
  if (model.moe) {
    shapes.push_back({{.dp = 4, .ep = 4}});
    shapes.push_back({{.tp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true}});
    shapes.push_back({{.pp = 2, .dp = 2, .ep = 2}, ScheduleKind::OneFOneB, 1});
  }
  std::vector<Plan> plans;
  for (const PlanShape& shape : shapes) {
    const Plan plan = plan_of_shape(model, shape, plans.size());
    if (check(plan).empty()) plans.push_back(plan);
  }
  return plans;
}

/// Losses, gradients and gradient norms of two steps of all these plans are those of one rank.
inline void check_every_axis(std::string_view suite, const models::ModelSpec& model) {
  constexpr int kTwoSteps = 2;
  constexpr std::size_t kLeastPlans = 7;
  const std::vector<Plan> plans = plans_on_every_axis(model);
  INFO(model.name);
  CHECK(plans.size() >= kLeastPlans);
  ParityJob job{.steps = kTwoSteps};
  check_plans(job, suite, model.name, plan_on(model), plans, described);
}

}  // namespace meshplan::test
