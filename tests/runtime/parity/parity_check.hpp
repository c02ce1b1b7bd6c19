// What every suite of plans in fp32 is held to.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace meshplan::test
