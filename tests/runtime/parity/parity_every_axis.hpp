// Plans of a model on every axis that its parts allow, held to one rank.
#pragma once

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <string_view>
#include <vector>

#include "program/checks/check.hpp"
#include "runtime/parity/parity_check.hpp"

namespace meshplan::test {

/// Plain descent, as in parity_encoders_mpi_test.cpp.
inline Plan plan_on(const models::ModelSpec& model, const ParallelConfig& parallel = {}) {
  Plan plan = parity_plan(model, parallel);
  plan.workload.optimizer.kind = program::OptimizerKind::Sgd;
  plan.workload.optimizer.learning_rate = 0.05;
  return plan;
}

inline std::string described(const Plan& plan) {
  return fmt::format("{} {} mbs{} schedule {} zero {} recompute {}", plan.model.name,
                     to_string(plan.parallel), plan.micro_batch_size,
                     static_cast<int>(plan.schedule), plan.zero_stage,
                     static_cast<int>(plan.recompute.kind));
}

/// Every axis that the parts allow, split backwards, chunks and ZeRO; recompute and micro-batch
/// size take turns. What does not fit the model (a stage without a layer) is left out.
inline std::vector<Plan> plans_on_every_axis(const models::ModelSpec& model) {
  struct Shape {
    ParallelConfig parallel;
    ScheduleKind schedule = ScheduleKind::OneFOneB;
    int zero_stage = 0;
  };
  std::vector<Shape> shapes = {
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
  for (const Shape& shape : shapes) {
    Plan plan = plan_on(model, shape.parallel);
    plan.schedule = shape.schedule;
    plan.zero_stage = shape.zero_stage;
    plan.micro_batch_size = plans.size() % 2 == 0 && shape.parallel.dp < 4 ? 2 : 1;
    plan.recompute.kind = static_cast<RecomputeKind>(plans.size() % 3);
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
