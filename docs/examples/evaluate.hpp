// What every example does with a plan: check it, estimate it, simulate it, print what it costs.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "program/checks/check.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/memory.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/estimator/estimator.hpp"

namespace examples {

struct Costs {
  meshplan::sim::StepPrediction step;  // simulated, with its seconds by category
  meshplan::sim::StageMemory memory;   // of a rank of the first stage, in bytes
};

inline void expect(bool holds, const std::string& what) {
  std::printf("%s: %s\n", holds ? "as expected" : "NOT AS EXPECTED", what.c_str());
  if (!holds) std::exit(1);
}

inline Costs evaluate(const std::string& title, const meshplan::program::Plan& plan,
                      const meshplan::sim::Cluster& cluster) {
  using namespace meshplan;
  // Check: every rule that the plan breaks, in words. None: it can be lowered, priced and run.
  for (const program::Violation& violation : program::check(plan)) expect(false, violation.message);

  // Estimate: blocks and the schedule in closed form. One estimator remembers the prices of blocks.
  sim::Estimator estimator(cluster);
  const sim::StepPrediction estimate = estimator.estimate(plan);

  // Simulate: the operations of all ranks, one by one, on the cluster's devices and links.
  const sim::SimulatedStep simulated = sim::simulate_step(plan, cluster);

  // Memory: what the program of each stage plans. Its operations can be looked at, too.
  const std::vector<program::Program> programs = program::lower_all(plan);
  const sim::MemoryReport memory = sim::memory_report(programs, cluster);
  std::printf("%-32s %8.3f s a step (estimated %.3f), MFU %4.1f %%, %5.1f of %.1f GB%s\n",
              title.c_str(), simulated.step.step_time_s, estimate.step_time_s,
              100 * simulated.step.mfu, memory.peak_bytes / 1e9, memory.capacity_bytes / 1e9,
              memory.fits() ? "" : ": DOES NOT FIT");
  return {simulated.step, memory.stages.front()};
}

}  // namespace examples
