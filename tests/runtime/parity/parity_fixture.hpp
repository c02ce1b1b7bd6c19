// What the parity tests share: plans, runs of them, and what they must agree with.
#pragma once

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <vector>

#include "runtime/parity/parity_job.hpp"

namespace meshplan::test {

constexpr int kSteps = 5;
constexpr int kMaxRanks = 8;

inline Plan base_plan(const models::ModelSpec& model) {
  Plan plan = parity_plan(model);
  plan.workload.optimizer.learning_rate = 1e-2;
  plan.workload.optimizer.warmup_steps = 2;
  plan.expert_imbalance = Plan{}.expert_imbalance;
  return plan;
}

struct Fixture : ParityJob {
  Fixture() : ParityJob{.steps = kSteps} {}
};

/// The one-rank run, and how far its losses move when the sums are taken in another order.
struct Reference {
  RunResult run;
  std::vector<double> spread;  // by step
};

/// @param plan  whose model and workload one rank runs
inline Reference reference_of(Fixture& fixture, Plan plan) {
  plan.parallel = {};
  plan.layers_per_stage.clear();
  plan.recompute = {};
  plan.micro_batch_size = 1;
  Reference reference{.run = fixture.run_alone(plan), .spread = std::vector<double>(kSteps, 0.0)};
  for (const int micro_batch : {2, 4, 8}) {
    plan.micro_batch_size = micro_batch;
    const RunResult other = fixture.run_alone(plan);
    for (std::size_t step = 0; step < kSteps; ++step)
      reference.spread[step] = std::max(reference.spread[step],
                                        std::abs(other.losses[step] - reference.run.losses[step]));
  }
  // Later steps inherit what earlier ones accumulated, and equal bits by luck are no tolerance.
  double floor = 1e-7 * reference.run.losses.front();
  for (double& spread : reference.spread) floor = spread = std::max(spread, floor);
  return reference;
}

inline std::string describe(const Plan& plan) {
  return fmt::format("{} {} mbs{} recompute{} layers[{}]", to_string(plan.parallel),
                     plan.schedule == ScheduleKind::GPipe
                         ? "gpipe"
                         : fmt::format("schedule {}", static_cast<int>(plan.schedule)),
                     plan.micro_batch_size, static_cast<int>(plan.recompute.kind),
                     plan.layers_per_stage.size());
}

inline models::ModelSpec with_key_heads(models::ModelSpec model, int num_kv_heads) {
  model.name += " with few key heads";
  model.num_kv_heads = num_kv_heads;
  return model;
}

}  // namespace meshplan::test
