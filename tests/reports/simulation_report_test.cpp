#include "reports/simulation_report.hpp"

#include <catch2/catch.hpp>

#include "sim/stacks/cluster_preset.hpp"

using namespace meshplan;
using namespace meshplan::reports;
using Catch::Matchers::Contains;

namespace {

program::Plan pipeline_of_two() {
  program::Plan plan;
  plan.model = models::load_preset("tiny-llama");
  plan.workload = {.seq_len = 128, .global_batch_size = 8};
  plan.parallel = {.pp = 2};
  plan.micro_batch_size = 2;
  return plan;
}

}  // namespace

TEST_CASE("a simulated plan is reported stage by stage", "[reports][simulation]") {
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("cpu-host"), 2);
  const SimulationReport report = simulation_report(pipeline_of_two(), cluster);
  REQUIRE(report.stages.size() == 2);
  CHECK(report.stages[1].stage == 1);
  CHECK(report.simulation.memory.stages.size() == 2);
  // 8 sequences of 128 tokens.
  CHECK(report.tokens_per_s * report.simulation.step_time_s == Approx(1024));
  CHECK(report.mfu > 0);
  CHECK(report.mfu < 1);
  const std::string text = to_text(report);
  CHECK_THAT(text, Contains("plan     pp2 mbs2, 4 micro-batches") && Contains("bubble") &&
                       Contains("fits: "));
  CHECK_THAT(to_json(report), Contains("\"peak_memory_bytes\""));
}

TEST_CASE("a plan that does not fit says by how much", "[reports][simulation]") {
  sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("cpu-host"), 2);
  cluster.device.memory_gib = 0.125;  // 64 MiB a rank: less than the process itself
  const SimulationReport report = simulation_report(pipeline_of_two(), cluster);
  CHECK_THAT(to_text(report), Contains("does not fit: stage"));
  CHECK_THAT(to_json(report), Contains("\"fits\": false"));
}
