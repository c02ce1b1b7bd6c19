#include "sim/estimator.hpp"

#include <chrono>
#include <cmath>

#include <catch2/catch.hpp>

#include "sim/engine.hpp"
#include "sim/memory.hpp"
#include "sim/plans.hpp"

namespace meshplan::sim {
namespace {

struct Comparison {
  double engine = 0;
  Estimate estimate;
  double error() const { return estimate.step_time_s / engine - 1; }
};

Comparison compare(const program::Plan& plan, const Cluster& cluster, bool contention = true) {
  SimulationOptions options;
  options.contention = contention;
  return {simulate(program::lower_all(plan), cluster, options).step_time_s,
          Estimator(cluster).estimate(plan)};
}

}  // namespace

TEST_CASE("est smoke", "[.smoke]") {
  for (const char* name : {"dgx-h100", "cpu-host", "cpu-cluster-10gbe"})
    for (const program::ParallelConfig parallel :
         {program::ParallelConfig{}, {.tp = 2}, {.tp = 2, .sp = true}, {.pp = 2}, {.dp = 4},
          {.tp = 2, .pp = 2, .dp = 2}, {.tp = 2, .pp = 4, .dp = 1, .sp = true}, {.pp = 4}})
      for (const auto recompute : {program::RecomputeKind::None, program::RecomputeKind::Full})
      for (const int cores : {16, 2}) {
      if (cores == 2 && std::string(name) == "dgx-h100") continue;
      auto cluster = with_ranks(load_cluster_preset(name), parallel.world_size());
      cluster.cores_per_host = cores;
      auto plan = tiny_plan(parallel, 8);
      plan.recompute.kind = recompute;
      const auto alone = compare(plan, cluster, false);
      const auto shared = compare(plan, cluster, true);
      const double mem = memory_report(program::lower_all(plan), cluster).peak_bytes;
      std::printf("%-12s cores %2d rc %d %-12s engine %.5f (alone %.5f) estimate %.5f error %+.3f (alone %+.3f) memory %+.5f\n",
        name, cores, int(recompute), to_string(parallel).c_str(), shared.engine, alone.engine, shared.estimate.step_time_s,
        shared.error(), alone.error(), shared.estimate.peak_memory_bytes / mem - 1);
    }
}

TEST_CASE("est speed", "[.smoke]") {
  auto plan = tiny_plan({}, 1);
  plan.model = models::load_preset("llama3-70b");
  plan.workload.seq_len = 4096;
  plan.workload.precision = DType::BF16;
  plan.workload.global_batch_size = 1024;
  Estimator estimator(with_ranks(load_cluster_preset("dgx-h100"), 1024));
  const auto t0 = std::chrono::steady_clock::now();
  int n = 0;
  double best = 1e9; std::string which;
  for (int tp : {1, 2, 4, 8})
    for (int pp : {1, 2, 4, 5, 8, 10, 16, 20})
      for (int mbs : {1, 2, 4})
        for (int sp : {0, 1})
          for (int rc : {0, 1, 2})
          for (auto sched : {program::ScheduleKind::GPipe, program::ScheduleKind::OneFOneB}) {
            if (1024 % (tp * pp) || (sp && tp == 1)) continue;
            plan.parallel = {.tp = tp, .pp = pp, .dp = 1024 / tp / pp, .sp = sp == 1};
            plan.micro_batch_size = mbs;
            if (1024 % (mbs * plan.parallel.dp)) continue;
            plan.schedule = sched;
            plan.recompute.kind = static_cast<program::RecomputeKind>(rc);
            const auto e = estimator.estimate(plan);
            ++n;
            if (e.fits() && e.step_time_s < best) { best = e.step_time_s; which = to_string(plan.parallel) + " mbs " + std::to_string(mbs) + " rc " + std::to_string(rc) + " mfu " + std::to_string(e.mfu); }
          }
  std::printf("%d plans in %.3f s; best %.3f %s\n", n, std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count(), best, which.c_str());
}

}  // namespace meshplan::sim
