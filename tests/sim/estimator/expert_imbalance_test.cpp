// What an unbalanced router costs: every rank waits for the busiest ep rank.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/model_spec.hpp"
#include "program/lower/lower.hpp"
#include "sim/engine/engine.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

program::Plan plan_of(double imbalance) {
  program::Plan plan;
  plan.model = models::load_preset("mixtral-8x7b");
  plan.workload.seq_len = 4096;
  plan.workload.precision = DType::BF16;
  plan.workload.global_batch_size = 64;
  plan.parallel = {.dp = 8, .ep = 8};
  plan.expected_expert_imbalance = imbalance;
  return plan;
}

}  // namespace

TEST_CASE("The engine and the estimator price the busiest ep rank alike", "[sim][experts]") {
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 8);
  const auto engine = [&](const program::Plan& plan) {
    return simulate(program::lower_all(plan), cluster, {.break_down = false, .record_spans = false})
        .step_time_s;
  };
  Estimator estimator(cluster);
  const double balanced = engine(plan_of(1));
  const double estimated = estimator.estimate(plan_of(1)).step_time_s;
  double before = balanced;
  for (const double imbalance : {1.25, 2.0}) {
    const program::Plan plan = plan_of(imbalance);
    const double played = engine(plan);
    const double estimate = estimator.estimate(plan).step_time_s;
    INFO("imbalance " << imbalance << ": engine " << played << " s, estimator " << estimate
                      << " s, balanced " << balanced << " s");
    CHECK(played > before);
    // Experts and their exchange are part of a step, so it grows by less than they do.
    CHECK(played < balanced * imbalance);
    CHECK(estimate / played == Approx(estimated / balanced).epsilon(0.01));
    before = played;
  }
}

}  // namespace meshplan::sim
