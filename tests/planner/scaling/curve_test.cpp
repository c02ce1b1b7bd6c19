// Scaling curves against closed forms on a network that costs nothing, and against single plays.
#include "planner/scaling/curve.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "core/error.hpp"
#include "planner/explain/plans.hpp"
#include "planner/objectives/sweeps.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/plans.hpp"

namespace meshplan::planner {
namespace {

using Catch::Matchers::Contains;

ScalingCurve curve_of(const program::Plan& base, ScaledAxis axis, const sim::Cluster& cluster,
                      std::vector<int> devices, ScalingMode mode = ScalingMode::Strong) {
  return scale_plan(base, axis, sim::with_ranks(cluster, base.parallel.world_size()),
                    {.mode = mode, .devices = std::move(devices)}, serial());
}

program::Plan llama_on_a_node() {
  program::Plan plan = preset_plan("llama3-8b", {.tp = 4, .dp = 2, .sp = true}, 64, 4096);
  plan.zero_stage = 1;
  return plan;
}

}  // namespace

TEST_CASE("With free links weak scaling over dp loses nothing", "[planner][scaling]") {
  const ScalingCurve curve = curve_of(sim::tiny_plan({}, 4), ScaledAxis::Dp,
                                      sim::free_communication(8), {1, 2, 8, 64}, ScalingMode::Weak);
  REQUIRE(curve.points.size() == 4);
  for (const ScalingPoint& point : curve.points) {
    REQUIRE(point.fits());
    CHECK(point.figures->plan.workload.global_batch_size == 4 * point.devices);
    CHECK(point.efficiency == Approx(1).epsilon(1e-4));
    CHECK(point.speed_up == Approx(point.devices).epsilon(1e-4));
  }
  REQUIRE(curve.knee);
  CHECK(*curve.knee == 3);
  CHECK_FALSE(curve.communication_bends);
  CHECK_FALSE(curve.bubble_bends);
  CHECK_FALSE(curve.rest_bends);
}

TEST_CASE("With free links strong scaling over dp is Amdahl's law with the optimizer in series",
          "[planner][scaling]") {
  // T(n) = a + b / n: micro-batches are divided, the update is not.
  const ScalingCurve curve = curve_of(sim::tiny_plan({}, 64), ScaledAxis::Dp,
                                      sim::free_communication(8), {1, 2, 4, 8, 16});
  const auto step_s = [&](std::size_t i) { return curve.points[i].figures->step.step_time_s; };
  const double b = 2 * (step_s(0) - step_s(1)), a = step_s(0) - b;
  for (std::size_t i = 0; i < curve.points.size(); ++i)
    CHECK(step_s(i) == Approx(a + b / curve.points[i].devices).epsilon(1e-3));
  REQUIRE(curve.serial);
  CHECK(curve.serial->serial == Approx(a / (a + b)).epsilon(0.02));
  CHECK(curve.trend == Trend::Constant);
}

TEST_CASE("Points are what a plan of that size is simulated to take", "[planner][scaling]") {
  const program::Plan base = llama_on_a_node();
  const ScalingCurve curve = curve_of(base, ScaledAxis::Dp, h100s(8), {8, 16, 32});
  for (const ScalingPoint& point : curve.points) {
    REQUIRE(point.is_valid());
    program::Plan plan = base;
    plan.parallel.dp = point.devices / 4;
    plan.bucket_bytes = default_bucket_bytes(plan.parallel);
    const sim::SimulatedStep step = sim::simulate_step(plan, h100s(point.devices));
    CHECK(point.figures->step.step_time_s == step.step.step_time_s);
    CHECK(point.figures->step.peak_memory_bytes == step.step.peak_memory_bytes);
    CHECK(*point.degree == plan.parallel.dp);
    // Efficiency is the ratio of MFUs.
    CHECK(point.efficiency ==
          Approx(step.step.mfu / curve.points[0].figures->step.mfu).epsilon(1e-9));
    const double lost = std::accumulate(point.lost.begin(), point.lost.end(), 0.0);
    CHECK(lost == Approx(1 - point.efficiency).margin(1e-9));
    CHECK(point.lost_to_communication() + point.lost_to_bubble() + point.lost_to_rest() ==
          Approx(1 - point.efficiency).margin(1e-12));
    CHECK(point.speed_up_80.low_s <= point.speed_up);
    CHECK(point.speed_up_80.high_s >= point.speed_up);
  }
  // A size errs against itself by nothing.
  CHECK(curve.points[0].speed_up_80.high_s == Approx(1));
}

TEST_CASE("Leaving the node is told", "[planner][scaling]") {
  const ScalingCurve curve = curve_of(llama_on_a_node(), ScaledAxis::Dp, h100s(8), {8, 16, 32});
  REQUIRE(curve.level_changes.size() == 1);
  CHECK(curve.level_changes[0].point == 1);
  CHECK(curve.level_changes[0].from == "nvlink");
  CHECK(curve.level_changes[0].to == "infiniband-ndr");
}

TEST_CASE("Sizes without a plan stay, with the rule and the nearest choice", "[planner][scaling]") {
  const program::Plan base = preset_plan("llama3-8b", {.tp = 2}, 8, 4096);
  const ScalingCurve curve = curve_of(base, ScaledAxis::Tp, h100s(8), {2, 3, 4, 7, 64});
  REQUIRE(curve.points.size() == 5);
  CHECK(curve.points[0].is_valid());
  CHECK_FALSE(curve.points[1].is_valid());  // 3 of 32 heads
  CHECK(curve.points[1].rule == "heads");
  CHECK_THAT(curve.points[1].message, Contains("nearest"));
  CHECK(curve.points[2].is_valid());
  CHECK_FALSE(curve.points[3].is_valid());
  CHECK_FALSE(curve.points[4].is_valid());
}

TEST_CASE("A size that is no multiple names the nearest that is", "[planner][scaling]") {
  const program::Plan base = llama_on_a_node();
  const ScaledPlan scaled = scaled_plan(base, ScaledAxis::Dp, ScalingMode::Strong, 14);
  CHECK_FALSE(scaled.degree);
  CHECK_THAT(scaled.message, Contains("nearest: 12"));
}

TEST_CASE("Each axis has its own weak scaling", "[planner][scaling]") {
  const program::Plan base = llama_on_a_node();
  const auto scaled = [&](ScaledAxis axis) {
    return scaled_plan(base, axis, ScalingMode::Weak, 16).plan;
  };
  CHECK(scaled(ScaledAxis::Dp).workload.global_batch_size == 128);
  CHECK(scaled(ScaledAxis::Tp).parallel.tp == 8);
  CHECK(scaled(ScaledAxis::Pp).parallel.pp == 2);
  CHECK(scaled(ScaledAxis::Pp).workload.global_batch_size == 128);
  const program::Plan longer = scaled(ScaledAxis::Cp);
  CHECK(longer.parallel.cp == 2);
  CHECK(longer.workload.seq_len == 8192);
  CHECK(longer.workload.global_batch_size == 64);
}

TEST_CASE("Experts scale with the replicas that they are divided over", "[planner][scaling]") {
  const program::Plan base =
      preset_plan("mixtral-8x7b", {.tp = 1, .pp = 4, .dp = 2, .ep = 2}, 64, 4096);
  const ScaledPlan scaled = scaled_plan(base, ScaledAxis::Ep, ScalingMode::Strong, 32);
  CHECK(scaled.message == "");
  CHECK(scaled.plan.parallel.ep == 8);
  CHECK(scaled.plan.parallel.dp == 8);
  CHECK(scaled_plan(base, ScaledAxis::Ep, ScalingMode::Strong, 64).rule != "");  // 8 experts
}

TEST_CASE("A batch that keeps the efficiency does, and a smaller one does not",
          "[planner][scaling]") {
  constexpr double kLeast = 0.97;
  constexpr std::int64_t kBatch = 64;
  const ScalingCurve curve = scale_plan(
      sim::tiny_plan({}, kBatch), ScaledAxis::Dp, h100s(1),
      {.devices = {1, 2, 8, 32}, .least_efficiency = kLeast, .iso_efficiency = true}, serial());
  const double mfu = curve.points[0].figures->step.mfu;
  const auto efficiency = [&](const ScalingPoint& point, std::int64_t batch) {
    program::Plan plan = point.figures->plan;
    plan.workload.global_batch_size = batch;
    return sim::simulate_step(plan, h100s(point.devices)).step.mfu / mfu;
  };
  CHECK(curve.points[0].iso->global_batch_size == kBatch);
  std::int64_t before = kBatch;
  for (const ScalingPoint& point : curve.points) {
    REQUIRE(point.iso);
    const std::int64_t batch = point.iso->global_batch_size;
    CHECK(point.iso->reached);
    CHECK(efficiency(point, batch) >= kLeast);
    CHECK(efficiency(point, batch) == Approx(point.iso->efficiency));
    CHECK(batch >= before);
    if (batch > kBatch) CHECK(efficiency(point, batch / 2) < kLeast);
    before = batch;
  }
  CHECK(before > 4 * kBatch);
}

TEST_CASE("Without a plan a size is the best plan of a search", "[planner][scaling]") {
  SearchRequest request;
  request.model = models::load_preset("gpt2-124m");
  request.cluster = h100s(1);
  request.workload = {.seq_len = 1024, .global_batch_size = 64, .precision = DType::BF16};
  request.constraints.at_most.pp = 2;
  const ScalingCurve curve = scale_search(request, {.devices = {1, 4, 7}}, serial());
  const DeviceSweep sweep = sweep_devices(request, {1, 4}, {}, serial());
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(curve.points[i].figures->step.step_time_s == sweep.points[i].plan->step_time_s());
  CHECK_FALSE(curve.points[2].is_valid());
  CHECK_FALSE(curve.points[2].message.empty());
}

TEST_CASE("A schedule that is written for its stages cannot get more of them",
          "[planner][scaling]") {
  program::Plan plan = sim::tiny_plan({.pp = 2}, 4);
  plan.schedule = program::ScheduleKind::Custom;
  CHECK_THROWS_WITH(curve_of(plan, ScaledAxis::Pp, h100s(8), {2, 4}), Contains("schedule: custom"));
  CHECK_THROWS_AS(curve_of(plan, ScaledAxis::Dp, h100s(8), {}), ConfigError);
}

}  // namespace meshplan::planner
