#include "sim/engine.hpp"

#include <catch2/catch.hpp>

#include "sim/plans.hpp"

namespace meshplan::sim {
namespace {

SimulationResult play(const program::Plan& plan, const Cluster& cluster,
                      const SimulationOptions& options = {}) {
  return simulate(program::lower_all(plan), cluster, options);
}

/// Seconds of the compute lane's spans of one kind on one rank.
double busy(const SimulationResult& result, int rank) {
  double seconds = 0;
  for (const auto& span : result.trace.spans)
    if (span.rank == rank && span.lane == program::Lane::Compute) seconds += span.end_s - span.start_s;
  return seconds;
}

}  // namespace

TEST_CASE("One rank's step is the sum of its operations", "[sim][engine]") {
  const auto plan = tiny_plan({}, 2);
  const auto cluster = free_communication(1);
  const auto result = play(plan, cluster);
  REQUIRE(result.periodic);
  CHECK(result.step_time_s == Approx(busy(result, 0)).epsilon(1e-9));
}

TEST_CASE("smoke", "[.smoke]") {
  for (const char* name : {"dgx-h100", "cpu-host"})
    for (const program::ParallelConfig parallel :
         {program::ParallelConfig{}, {.tp = 2}, {.tp = 2, .sp = true}, {.pp = 2}, {.dp = 4},
          {.tp = 2, .pp = 2, .dp = 2}, {.tp = 2, .pp = 4, .dp = 1, .sp = true}}) {
      auto cluster = with_ranks(load_cluster_preset(name), parallel.world_size());
      cluster.cores_per_host = 2;
      auto plan = tiny_plan(parallel, 8);
      const auto result = play(plan, cluster);
      const auto flat = play(plan, cluster, {.fold = false});
      UNSCOPED_INFO(name << " " << to_string(parallel) << " step " << result.step_time_s << " folded "
                << result.folded << " unfolded " << flat.step_time_s << " steps "
                << result.steps_played << " events " << result.events << " periodic " << result.periodic);
      for (const auto& rank : result.breakdown) {
        std::string line;
        for (auto c : all_categories()) line += std::string(name_of(c)) + "=" + std::to_string(rank.seconds[c]*1e3) + " ";
        UNSCOPED_INFO(rank.rank << ": " << line << " total " << rank.seconds.total());
      }
      CHECK(false);
    }
}

}  // namespace meshplan::sim
