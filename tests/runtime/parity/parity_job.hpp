// Ranks of a test's job for plans of any size: a plan runs on the first of them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/host_communicator.hpp"
#include "kernels/cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "runtime/first_ranks.hpp"
#include "runtime/parity/parity_support.hpp"

namespace meshplan::test {

using program::ContextMethod;
using program::ParallelConfig;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

/// What suites start from: 8 sequences of 16 tokens on one rank.
inline Plan parity_plan(const models::ModelSpec& model, const ParallelConfig& parallel = {}) {
  Plan plan;
  plan.model = model;
  plan.parallel = parallel;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 8;
  plan.workload.optimizer.learning_rate = 1e-3;
  plan.bucket_bytes = 64 << 10;  // several buckets even in a small model
  plan.expert_imbalance = 8;     // an untrained router may send any rank everything
  return plan;
}

struct ParityJob {
  int steps;
  std::unique_ptr<runtime::Communicator> world = runtime::make_host_world(mpi_session(), {});
  std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend(1);
  runtime::HostDevice device{*backend};

  /// As many as the plan needs; null on the others. All ranks of the job call it.
  std::unique_ptr<runtime::Communicator> first_ranks(const Plan& plan) {
    return test::first_ranks(*world, plan.parallel.world_size());
  }
  /// Each rank by itself.
  std::unique_ptr<runtime::Communicator> alone() {
    const int self = world->rank();
    return world->create_group(std::span(&self, 1), "alone");
  }

  /// Runs on the first ranks of the job; the others get nothing.
  /// @param other  a backend instead of `backend`
  std::optional<RunResult> run(const Plan& plan, const Mutation& mutate = {},
                               const Variant& variant = {}, kernels::Backend* other = nullptr) {
    const auto group = first_ranks(plan);
    if (group == nullptr) return std::nullopt;
    return run_plan(plan, steps, *group, other == nullptr ? *backend : *other, mutate, variant);
  }

  /// One rank, on every rank of the job.
  RunResult run_alone(const Plan& plan) { return run_plan(plan, steps, *alone(), *backend); }
};

}  // namespace meshplan::test
