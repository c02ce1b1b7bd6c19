#include "sim/estimator/estimator.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/memory.hpp"
#include "sim/plans.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

using program::ParallelConfig;
using program::RecomputeKind;

std::vector<ParallelConfig> estimated_meshes() {
  return {{},        {.tp = 2}, {.tp = 2, .sp = true},       {.pp = 2},
          {.pp = 4}, {.dp = 4}, {.tp = 2, .pp = 2, .dp = 2}, {.tp = 2, .pp = 4, .sp = true}};
}

std::vector<program::Plan> plans() {
  std::vector<program::Plan> all;
  for (const ParallelConfig& parallel : estimated_meshes())
    for (const auto recompute : {RecomputeKind::None, RecomputeKind::Full})
      for (const auto schedule : {program::ScheduleKind::GPipe, program::ScheduleKind::OneFOneB}) {
        auto plan = tiny_plan(parallel, 8);
        plan.recompute.kind = recompute;
        plan.schedule = schedule;
        all.push_back(plan);
      }
  return all;
}

/// Every method of context parallelism.
std::vector<program::Plan> context_plans() {
  std::vector<program::Plan> all;
  for (const ParallelConfig& parallel : {ParallelConfig{.cp = 2}, ParallelConfig{.cp = 4, .dp = 2},
                                         ParallelConfig{.tp = 2, .cp = 2, .pp = 2, .sp = true}})
    for (const auto method : {program::ContextMethod::AllGather, program::ContextMethod::Ring,
                              program::ContextMethod::Ulysses}) {
      auto plan = tiny_plan(parallel, 8);
      plan.context_parallel = method;
      if (check(plan).empty()) all.push_back(plan);
    }
  return all;
}

/// Every schedule with chunks or split backwards; tiny-llama has 8 layers.
std::vector<program::Plan> scheduled_plans() {
  using program::ScheduleKind;
  struct Case {
    ScheduleKind kind;
    ParallelConfig mesh;
    int num_microbatches;
  };
  std::vector<program::Plan> all;
  for (const Case& one :
       {Case{ScheduleKind::Interleaved, {.pp = 2, .vpp = 2}, 8},
        Case{ScheduleKind::Interleaved, {.pp = 4, .vpp = 2, .dp = 2}, 8},
        Case{ScheduleKind::Interleaved, {.tp = 2, .pp = 2, .vpp = 4, .sp = true}, 6},
        Case{ScheduleKind::Interleaved, {.pp = 4, .vpp = 2}, 10},
        Case{ScheduleKind::OverlappedOneFOneB, {.pp = 4}, 10},
        Case{ScheduleKind::OverlappedOneFOneB, {.pp = 4, .vpp = 2}, 8},
        Case{ScheduleKind::OverlappedOneFOneB, {.tp = 2, .pp = 2, .dp = 2}, 8},
        Case{ScheduleKind::ZbH1, {.pp = 4}, 8},
        Case{ScheduleKind::ZbH1, {.tp = 2, .pp = 2, .dp = 2}, 8},
        Case{ScheduleKind::ZbV, {.pp = 4, .vpp = 2}, 10},
        Case{ScheduleKind::ZbV, {.tp = 2, .pp = 2, .vpp = 2, .dp = 2}, 8},
        Case{ScheduleKind::DualPipeV, {.pp = 4, .vpp = 2}, 10},
        Case{ScheduleKind::DualPipeV, {.tp = 2, .pp = 2, .vpp = 2, .dp = 2}, 8}}) {
    auto plan = tiny_plan(one.mesh, one.num_microbatches);
    plan.schedule = one.kind;
    all.push_back(plan);
  }
  return all;
}

}  // namespace

TEST_CASE("The estimate of every schedule equals the engine where nothing contends",
          "[sim][estimator]") {
  for (const auto& plan : scheduled_plans())
    for (const char* name : {"dgx-h100", "cpu-host"}) {
      Cluster cluster = with_ranks(load_cluster_preset(name), plan.parallel.world_size());
      cluster.communication.device_share = 0;
      cluster.host_memory_gb_per_s = 0;
      const double error =
          Estimator(cluster).estimate(plan).step_time_s / played(plan, cluster, false) - 1;
      INFO(to_string(plan.parallel)
           << " schedule " << static_cast<int>(plan.schedule) << " on " << name << ": " << error);
      CHECK(std::abs(error) <= kEstimatorTolerance);
    }
}

TEST_CASE("The estimated memory of every schedule is the programs'", "[sim][estimator]") {
  for (const auto& plan : scheduled_plans()) {
    const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), plan.parallel.world_size());
    const MemoryReport report = memory_report(program::lower_all(plan), cluster);
    const StepPrediction estimate = Estimator(cluster).estimate(plan);
    INFO(to_string(plan.parallel) << " schedule " << static_cast<int>(plan.schedule));
    CHECK(estimate.peak_memory_bytes == Approx(report.peak_bytes).epsilon(2e-3));
  }
}

TEST_CASE("The estimate with cp equals the engine where nothing contends, and so does its memory",
          "[sim][estimator]") {
  CHECK(context_plans().size() == 9);
  for (const auto& plan : context_plans())
    for (const char* name : {"dgx-h100", "cpu-host"}) {
      Cluster cluster = with_ranks(load_cluster_preset(name), plan.parallel.world_size());
      cluster.communication.device_share = 0;
      cluster.host_memory_gb_per_s = 0;
      const StepPrediction estimate = Estimator(cluster).estimate(plan);
      const double error = estimate.step_time_s / played(plan, cluster, false) - 1;
      INFO(to_string(plan.parallel) << " method " << static_cast<int>(plan.context_parallel)
                                    << " on " << name << ": " << error);
      CHECK(std::abs(error) <= kEstimatorTolerance);
      CHECK(estimate.seconds[Category::Cp] > 0);
      const MemoryReport report = memory_report(program::lower_all(plan), cluster);
      CHECK(estimate.peak_memory_bytes == Approx(report.peak_bytes).epsilon(2e-3));
    }
}

TEST_CASE("The estimate equals the engine where nothing contends", "[sim][estimator]") {
  for (const auto& plan : plans())
    for (const char* name : {"dgx-h100", "cpu-host"}) {
      Cluster cluster = with_ranks(load_cluster_preset(name), plan.parallel.world_size());
      cluster.communication.device_share = 0;
      cluster.host_memory_gb_per_s = 0;
      const double error =
          Estimator(cluster).estimate(plan).step_time_s / played(plan, cluster, false) - 1;
      INFO(to_string(plan.parallel) << " on " << name << ": " << error);
      CHECK(std::abs(error) <= kEstimatorTolerance);
    }
}

TEST_CASE("The estimate is near the engine where ranks share cores", "[sim][estimator]") {
  for (const auto& plan : plans()) {
    const Cluster cluster = cpu_host(plan.parallel.world_size(), 2);
    const double error =
        Estimator(cluster).estimate(plan).step_time_s / played(plan, cluster, true) - 1;
    INFO(to_string(plan.parallel) << ": " << error);
    CHECK(std::abs(error) <= kSharedCoresTolerance);
  }
}

TEST_CASE("The estimated memory is the programs'", "[sim][estimator]") {
  for (const auto& plan : plans()) {
    const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), plan.parallel.world_size());
    const MemoryReport report = memory_report(program::lower_all(plan), cluster);
    const StepPrediction estimate = Estimator(cluster).estimate(plan);
    INFO(to_string(plan.parallel));
    CHECK(estimate.peak_memory_bytes == Approx(report.peak_bytes).epsilon(1e-3));
    CHECK(estimate.largest_stage == report.largest_stage);
  }
}

TEST_CASE("Uneven stages and partly recomputed stages are estimated", "[sim][estimator]") {
  auto plan = tiny_plan({.pp = 3}, 6);
  plan.layers_per_stage = {2, 4, 2};
  plan.recompute = {.kind = RecomputeKind::Full, .num_layers = 1};
  Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 3);
  const double engine = played(plan, cluster, false);
  const StepPrediction estimate = Estimator(cluster).estimate(plan);
  CHECK(std::abs(estimate.step_time_s / engine - 1) <= kEstimatorTolerance);
  const MemoryReport report = memory_report(program::lower_all(plan), cluster);
  CHECK(estimate.peak_memory_bytes == Approx(report.peak_bytes).epsilon(0.01));
}

TEST_CASE("Many micro-batches are extrapolated", "[sim][estimator]") {
  auto plan = tiny_plan({.pp = 4}, 200);
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 4);
  const auto check_estimate = [&] {
    const double engine = played(plan, cluster, false);
    CHECK(std::abs(Estimator(cluster).estimate(plan).step_time_s / engine - 1) <=
          kEstimatorTolerance);
  };
  check_estimate();
  plan.schedule = program::ScheduleKind::ZbH1;
  check_estimate();
}

TEST_CASE("The estimate's categories sum to the step", "[sim][estimator]") {
  Estimator estimator(with_ranks(load_cluster_preset("dgx-h100"), 8));
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tp = 4, .dp = 2, .sp = true}, {.dp = 8}, {.tp = 2, .pp = 2, .dp = 2}}) {
    const StepPrediction estimate = estimator.estimate(tiny_plan(parallel, 4));
    CHECK(estimate.seconds.total() == Approx(estimate.step_time_s));
  }
}

// 6 * parameters * tokens is MFU's numerator for a model whose attention is small: by hand,
// flops / (step * ranks * peak) must give the same ratio for 1 and for 2 data-parallel ranks' work.
// What plans have in common is kept from one to the next: whichever came before, a plan is
// estimated as alone.
TEST_CASE("An estimate does not depend on the plans before", "[sim][estimator]") {
  std::vector<program::Plan> all;
  for (const ParallelConfig& parallel :
       {ParallelConfig{.pp = 4, .dp = 2}, ParallelConfig{.tp = 2, .pp = 2, .dp = 2}})
    for (const int microbatches : {6, 40})
      for (const auto recompute : {RecomputeKind::None, RecomputeKind::Full})
        for (const auto schedule : {program::ScheduleKind::OneFOneB, program::ScheduleKind::GPipe})
          for (const std::int64_t bucket_bytes : {1 << 20, 1 << 24})
            for (const int zero : {0, 1}) {
              auto plan = tiny_plan(parallel, microbatches);
              plan.recompute.kind = recompute;
              plan.schedule = schedule;
              plan.bucket_bytes = bucket_bytes;
              plan.zero_stage = zero;
              all.push_back(plan);
            }
  for (const int zero : {2, 3})
    for (const auto schedule : {program::ScheduleKind::OneFOneB, program::ScheduleKind::GPipe}) {
      auto plan = tiny_plan({.dp = 8}, 4);
      plan.schedule = schedule;
      plan.zero_stage = zero;
      all.push_back(plan);
    }
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 8);
  Estimator kept(cluster);
  for (const program::Plan& plan : all) {
    const StepPrediction again = kept.estimate(plan), alone = Estimator(cluster).estimate(plan);
    CHECK(again.step_time_s == alone.step_time_s);
    CHECK(again.seconds == alone.seconds);
    CHECK(again.peak_memory_bytes == alone.peak_memory_bytes);
    CHECK(again.largest_stage == alone.largest_stage);
  }
}

TEST_CASE("MFU counts the work of all ranks", "[sim][estimator]") {
  const Cluster one = free_communication(1), two = free_communication(2);
  const double alone = Estimator(one).estimate(tiny_plan({}, 4)).mfu;
  const double both = Estimator(two).estimate(tiny_plan({.dp = 2}, 4)).mfu;
  CHECK(both == Approx(alone).epsilon(0.01));
}

TEST_CASE("An estimate is refused for another number of ranks", "[sim][estimator]") {
  Estimator estimator(cpu_host(2, 2));
  CHECK_THROWS_AS(estimator.estimate(tiny_plan({.dp = 4}, 4)), ConfigError);
}

}  // namespace meshplan::sim
