// What the parity tests share: plans, runs of them, and what they must agree with.
#pragma once

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "program/lower.hpp"
#include "runtime/host_communicator.hpp"
#include "runtime/parity_support.hpp"

namespace meshplan::test {

using program::ParallelConfig;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

constexpr int kSteps = 5;
constexpr int kMaxRanks = 8;

inline Plan base_plan(const models::ModelSpec& model) {
  Plan plan;
  plan.model = model;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 8;
  plan.workload.optimizer.learning_rate = 1e-2;
  plan.workload.optimizer.warmup_steps = 2;
  plan.bucket_bytes = 64 << 10;  // several buckets even in a small model
  return plan;
}

struct Fixture {
  std::unique_ptr<runtime::Communicator> world = runtime::make_host_world(mpi_session(), {});
  std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend(1);

  /// Runs on the first ranks of the job; the others get nothing.
  std::optional<RunResult> run(const Plan& plan, const Mutation& mutate = {},
                               const Variant& variant = {}, kernels::Backend* buggy = nullptr) {
    std::vector<int> ranks(static_cast<std::size_t>(plan.parallel.world_size()));
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
    const auto group = world->create_group(ranks, "plan");
    if (group == nullptr) return std::nullopt;
    return run_plan(plan, kSteps, *group, buggy == nullptr ? *backend : *buggy, mutate, variant);
  }

  /// One rank, on every rank of the job.
  RunResult run_alone(const Plan& plan) {
    const int self = world->rank();
    const auto group = world->create_group(std::span(&self, 1), "alone");
    return run_plan(plan, kSteps, *group, *backend);
  }
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
