// Ranks of a test's job for plans of any size: a plan runs on the first of them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "runtime/host_communicator.hpp"
#include "runtime/parity_support.hpp"

namespace meshplan::test {

struct ParityJob {
  int steps;
  std::unique_ptr<runtime::Communicator> world = runtime::make_host_world(mpi_session(), {});
  std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend(1);

  /// Runs on the first ranks of the job; the others get nothing.
  std::optional<RunResult> run(const program::Plan& plan, const Mutation& mutate = {}) {
    std::vector<int> ranks(static_cast<std::size_t>(plan.parallel.world_size()));
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
    const auto group = world->create_group(ranks, "plan");
    if (group == nullptr) return std::nullopt;
    return run_plan(plan, steps, *group, *backend, mutate);
  }

  RunResult run_alone(const program::Plan& plan) {
    const int self = world->rank();
    const auto group = world->create_group(std::span(&self, 1), "alone");
    return run_plan(plan, steps, *group, *backend);
  }
};

}  // namespace meshplan::test
