// The way from a model's FLOPs to its step time: parts that sum, and that closed forms know.
#include "sim/engine/step_parts.hpp"

#include <catch2/catch.hpp>
#include <fmt/ranges.h>

#include "program/checks/check.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/plans.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/random_plans.hpp"
#include "sim/stacks/run_prediction.hpp"
#include "sim/stacks/software.hpp"
#include "support/cases.hpp"

namespace meshplan::sim {
namespace {

constexpr double kRounding = 1e-9;  // of a step

void check_parts(const StepParts& parts, double step_time_s, bool may_leave_out_flops) {
  CHECK(parts.total() == Approx(step_time_s).epsilon(kRounding));
  for (const StepPart part : all_step_parts()) {
    INFO(name_of(part) << " " << parts[part]);
    if (part != StepPart::Beyond || !may_leave_out_flops)
      CHECK(parts[part] >= -kRounding * step_time_s);
  }
}

/// A GPU that reaches its peaks, on which nothing else takes time.
Cluster perfect_gpu() {
  Cluster cluster = free_communication(1);
  Efficiency& efficiency = cluster.device.efficiency;
  efficiency = {};
  efficiency.gemm = efficiency.attention_forward = efficiency.attention_backward = 1;
  efficiency.tile_m = efficiency.tile_n = 1;
  efficiency.half_k = 0;
  cluster.device.num_units = 1;
  cluster.device.memory_gb_per_s = 1e9;
  return cluster;
}

}  // namespace

TEST_CASE("parts of any played step sum to it", "[sim][parts]") {
  const int kPlans = testing::random_cases(60);
  testing::Random random(20261126);
  for (int i = 0; i < kPlans; ++i) {
    const RandomPlan one = random_plan(random);
    INFO(to_string(one.plan.parallel) << " on " << one.cluster.name << ": "
                                      << fmt::format("{}", fmt::join(one.techniques, ", ")));
    const PlayedPlan played = play_plan(one.plan, one.cluster);
    const StepParts parts = parts_of(played, one.plan, one.cluster);
    // Nodes of two types work at two peaks, of which a mean is taken.
    const bool mixed = !one.cluster.other_nodes.empty();
    CHECK(parts.total() == Approx(played.result.step_time_s).epsilon(kRounding));
    if (!mixed) check_parts(parts, played.result.step_time_s, !one.plan.frozen.empty());
    CHECK(parts[StepPart::Ideal] / parts.total() ==
          Approx(model_flops_utilization(one.plan, one.cluster, played.result.step_time_s)));
  }
}

TEST_CASE("parts of a run of any stack sum to its step", "[sim][parts][software]") {
  const int kPlans = testing::random_cases(150);
  testing::Random random(7);
  const Constants constants = constants_of(fitted_constants());
  int priced = 0;
  for (int i = 0; i < kPlans; ++i) {
    RandomPlan one = random_plan(random);
    if (!one.cluster.other_nodes.empty()) continue;
    one.plan.layers_per_stage.clear();
    if (!program::check(one.plan).empty()) continue;
    for (const std::string& software : execution_profile_names()) {
      if (software == kOwnSoftware || !software_violations(on_stack(one.plan, software)).empty())
        continue;
      INFO(software << " " << to_string(one.plan.parallel) << " on " << one.cluster.name);
      const PreparedRun run(run_of(on_stack(one.plan, software), one.cluster.name),
                            data_sheet_of(one.cluster));
      const RunPrediction prediction = run.predict(constants);
      const StepParts parts =
          parts_of(prediction, run.exposed_sends(constants), one.plan, one.cluster);
      // Unfused head and gates of experts are no FLOPs of the walk.
      check_parts(parts, prediction.step_time_s, true);
      ++priced;
    }
  }
  CHECK(priced > kPlans / 3);
}

TEST_CASE("on a perfect device a step is its FLOPs, and attention's scores once more",
          "[sim][parts]") {
  program::Plan plan = tiny_plan({}, 2);
  plan.workload.seq_len = 256;
  const Cluster cluster = perfect_gpu();
  const PlayedPlan played = play_plan(plan, cluster);
  const StepParts parts = parts_of(played, plan, cluster);
  // Backward computes q k^T again: 2 FLOPs for each pair, head and element of a head. Of a query's
  // own key the model counts half of 3 times 4, forward and backward.
  const models::ModelSpec& model = plan.model;
  const double pairs = 256.0 * 257 / 2, diagonal = 256;
  const double heads = model.num_heads * model.head_size * model.num_layers *
                       static_cast<double>(plan.workload.global_batch_size);
  const double peak = peak_flop_per_s(cluster, plan.workload);
  CHECK(parts[StepPart::Beyond] * peak ==
        Approx((2 * pairs + 3 * 4 * diagonal / 2) * heads).epsilon(1e-6));
  CHECK(parts[StepPart::Products] == Approx(0).margin(1e-6 * parts.total()));
  CHECK(parts[StepPart::Attention] == Approx(0).margin(1e-6 * parts.total()));
  CHECK(parts[StepPart::Slowdown] == Approx(0).margin(1e-6 * parts.total()));
}

TEST_CASE("recompute, offload and stragglers are parts of their own", "[sim][parts]") {
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 8);
  program::Plan plan = tiny_plan({.dp = 8}, 4);
  plan.workload.precision = DType::BF16;
  const auto parts = [&] { return parts_of(play_plan(plan, cluster), plan, cluster); };
  const StepParts plain = parts();
  CHECK(plain[StepPart::Recompute] == 0);
  CHECK(plain[StepPart::Offload] == 0);
  plan.recompute.kind = program::RecomputeKind::Full;
  const StepParts recomputed = parts();
  CHECK(recomputed[StepPart::Recompute] > 0.2 * plain[StepPart::Products]);
  CHECK(recomputed[StepPart::Products] == Approx(plain[StepPart::Products]));
  plan.offload_optimizer = true;
  CHECK(parts()[StepPart::Offload] > 0);
  CHECK(step_effects(cluster, with_step_effects(cluster, 2.5)) ==
        Approx(with_step_effects(cluster, 2.5) - 2.5));
}

}  // namespace meshplan::sim
