// Traces "measured" on a machine that differs from its cluster file by known factors.
#include "sim/fit/refine.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "program/cost/cost.hpp"
#include "sim/engine/engine.hpp"
#include "sim/plans.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

/// A host whose table holds every operator of the plan, `factor` times as slow as its data sheet
/// says.
Cluster measured_host(const std::vector<program::Plan>& plans, double factor) {
  Cluster cluster = cpu_host(2, 2);
  cluster.host_memory_gb_per_s = 0;
  std::vector<MeasuredOperator> table;
  for (const program::Plan& plan : plans)
    for (const auto& stage : program::lower_all(plan))
      for (const auto& instance : stage.instances) {
        const std::string signature = program::signature(stage, instance);
        if (signature.empty() ||
            std::ranges::find(table, signature, &MeasuredOperator::signature) != table.end())
          continue;
        const double seconds = price_operation(stage, instance, cluster).seconds;
        table.push_back({.signature = signature, .seconds = factor * seconds});
      }
  cluster.operators = table;
  return cluster;
}

program::Trace measured_on(const Cluster& machine, const program::Plan& plan) {
  program::Trace trace = simulate(program::lower_all(plan),
                                  with_ranks(machine, plan.parallel.world_size()), {.fold = false})
                             .trace;
  trace.measured = true;
  return trace;
}

}  // namespace

// Everything takes 1.5 times what the file says: before, a prediction is a third too small; after,
// ratios seen n times count n / (n + 2), so next to nothing is left.
TEST_CASE("Traces correct operators, and plans that were left out gain by it", "[sim][refine]") {
  const std::vector<program::Plan> plans{tiny_plan({}, 4), tiny_plan({.dp = 2}, 4),
                                         tiny_plan({.pp = 2}, 4)};
  const Cluster machine = measured_host(plans, 1.5);
  const Cluster file = measured_host(plans, 1.0);
  std::vector<program::Trace> traces;
  for (const program::Plan& plan : plans) traces.push_back(measured_on(machine, plan));
  const Refinement refined = refine(file, traces);
  CHECK(refined.operators > 10);
  REQUIRE(refined.held_out_before);
  REQUIRE(refined.held_out_after);
  CHECK(*refined.held_out_before > 0.25);
  CHECK(*refined.held_out_after < 0.05);
}

TEST_CASE("A trace that agrees changes nothing", "[sim][refine]") {
  const std::vector<program::Plan> plans{tiny_plan({.dp = 2}, 4)};
  const Cluster file = measured_host(plans, 1.0);
  const Refinement refined = refine(file, {measured_on(file, plans.front())});
  for (std::size_t i = 0; i < file.operators.size(); ++i)
    CHECK(refined.cluster.operators[i].seconds == Approx(file.operators[i].seconds).epsilon(1e-6));
  CHECK_FALSE(refined.held_out_before);
}

TEST_CASE("A trace that was not measured is refused", "[sim][refine]") {
  const std::vector<program::Plan> plans{tiny_plan({}, 2)};
  const Cluster file = measured_host(plans, 1.0);
  program::Trace trace = measured_on(file, plans.front());
  trace.measured = false;
  CHECK_THROWS_WITH(refine(file, {trace}), Catch::Contains("not measured"));
  CHECK_THROWS_AS(refine(file, {}), ConfigError);
}

TEST_CASE("A trace with times that no noise explains is refused", "[sim][refine]") {
  const std::vector<program::Plan> plans{tiny_plan({}, 2)};
  const Cluster file = measured_host(plans, 1.0);
  const program::Trace good = measured_on(file, plans.front());
  for (const double seconds : {1e-30, 1.7e8}) {
    program::Trace trace = good;
    for (program::Span& span : trace.spans) {
      span.start_s = 0;
      span.end_s = seconds;
    }
    CHECK_THROWS_WITH(refine(file, {trace}),
                      Catch::Contains("refine: trace 1") && Catch::Contains("times more or less"));
  }
  program::Trace trace = good;
  trace.step_times_s = {0};
  CHECK_THROWS_WITH(refine(file, {trace}), Catch::Contains("a step takes time"));
}

}  // namespace meshplan::sim
