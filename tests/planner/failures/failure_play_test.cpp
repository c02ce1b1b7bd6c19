#include "planner/failures/failure_play.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/checkpoint_interval.hpp"
#include "core/error.hpp"
#include "planner/failures/failure_study.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

/// A job of nodes of one device, dp = nodes / pp.
FailureCosts costs_of(int nodes, int pp = 1, SmallerWorld world = SmallerWorld::ShrinkBatch) {
  program::Plan plan;
  plan.workload.global_batch_size = nodes;
  plan.parallel = {.pp = pp, .dp = nodes / pp};
  return {.num_nodes = nodes,
          .devices = nodes,
          .mtbf_s = 20'000,
          .checkpoint = {.stall_s = 20},
          .detection_s = 200,
          .start_s = 300,
          .worlds = SmallerWorlds(plan, 1, nodes, world)};
}

double sum(const TimeParts& parts) {
  return parts.useful + parts.lost + parts.saving + parts.restart + parts.smaller;
}

}  // namespace

TEST_CASE("Where spares replace nodes at once, trials agree with Daly", "[planner][failures]") {
  for (const double mtbf : {2'000.0, 20'000.0})
    for (const double stall : {2.0, 100.0})
      for (const double load : {0.0, 700.0}) {
        FailureCosts costs = costs_of(64);
        costs.mtbf_s = mtbf;
        costs.checkpoint.stall_s = stall;
        costs.checkpoint.load_s = load;
        costs.spare_nodes = 64;  // which come back at once, too
        const double interval = best_checkpoint_interval_s(stall, mtbf);
        const FailurePlay play =
            play_failures(costs, interval, {.days = 365, .trials = 100, .seed = 7});
        const double exact = checkpoint_goodput(
            {.mtbf_s = mtbf, .stall_s = stall, .restart_s = costs.restart_s()}, interval);
        REQUIRE(play.standard_error > 0);
        CHECK(std::abs(play.parts.useful - exact) < 4 * play.standard_error);
        CHECK(play.low < exact);
        CHECK(play.high > exact);
        CHECK(sum(play.parts) == Approx(1));
        CHECK(play.parts.smaller == Approx(0).margin(1e-9));
        CHECK(play.failures == Approx(365 * kDaySeconds / mtbf).epsilon(0.02));
      }
}

TEST_CASE("Rare repairs cost what the nodes that are away do", "[planner][failures]") {
  // 8 of 8 nodes, one of which is away for a tenth of the time: M/G/infinity with a mean of 0.1.
  FailureCosts costs = costs_of(8);
  costs.detection_s = costs.start_s = 0;
  costs.checkpoint.stall_s = 1e-3;
  costs.repair_s = 0.1 * costs.mtbf_s;
  const FailurePlay play = play_failures(costs, 10, {.days = 365, .trials = 50});
  CHECK(play.parts.smaller == Approx(0.1 / 8).epsilon(0.05));
  CHECK(sum(play.parts) == Approx(1));
}

TEST_CASE("A job of one replica waits for its node", "[planner][failures]") {
  FailureCosts costs = costs_of(4, 4);
  costs.checkpoint.stall_s = 1e-3;
  costs.checkpoint.load_s = 50;
  costs.repair_s = 5'000;
  const FailurePlay play = play_failures(costs, 10, {.days = 365, .trials = 100});
  // It runs for M, waits for the repair and starts; failures while it starts are rare.
  const double cycle = costs.mtbf_s + costs.repair_s + costs.start_s + costs.checkpoint.load_s;
  CHECK(play.parts.smaller == Approx(costs.repair_s / cycle).epsilon(0.03));
  CHECK(play.parts.useful == Approx(costs.mtbf_s / cycle).epsilon(0.03));
}

TEST_CASE("What is not yet written is lost, too", "[planner][failures]") {
  FailureCosts costs = costs_of(64);
  costs.spare_nodes = 64;
  costs.detection_s = costs.start_s = 0;
  costs.checkpoint.stall_s = 1e-6;
  const double interval = 500;
  const auto lost = [&](double lag) {
    costs.checkpoint.lag_s = lag;
    return play_failures(costs, interval, {.days = 365, .trials = 50}).parts.lost;
  };
  // A failure undoes half an interval on average, and what was written since it was copied.
  CHECK(lost(0) == Approx(interval / 2 / costs.mtbf_s).epsilon(0.05));
  CHECK(lost(400) == Approx((interval / 2 + 400) / costs.mtbf_s).epsilon(0.05));
}

TEST_CASE("A seed says everything", "[planner][failures]") {
  FailureCosts costs = costs_of(16, 4);
  costs.repair_s = 3'600;
  const PlayOptions options{.days = 30, .trials = 20, .seed = 3};
  const FailurePlay first = play_failures(costs, 100, options);
  const FailurePlay again = play_failures(costs, 100, options);
  CHECK(first.parts.useful == again.parts.useful);
  CHECK(first.low == again.low);
  CHECK(play_failures(costs, 100, {.trials = 20, .seed = 4}).parts.useful != first.parts.useful);
  // An interval longer than the trial: whatever a failure undoes begins anew.
  const FailurePlay never = play_failures(costs, 1e9, options);
  CHECK(never.parts.useful < first.parts.useful);
  CHECK(sum(never.parts) == Approx(1));
}

TEST_CASE("What cannot be played is refused", "[planner][failures]") {
  const FailureCosts costs = costs_of(8);
  CHECK_THROWS_AS(play_failures(costs, 10, {.days = 0}), ConfigError);
  CHECK_THROWS_AS(play_failures(costs, 10, {.days = std::nan("")}), ConfigError);
  CHECK_THROWS_AS(play_failures(costs, 10, {.trials = 0}), ConfigError);
  CHECK_THROWS_AS(play_failures(costs, 10, {.days = 36'000, .trials = 100'000}), ConfigError);
}

TEST_CASE("Llama 3's failures leave about the goodput that its report states",
          "[planner][failures]") {
  // 419 unexpected interruptions in 54 days on 16,384 GPUs and more than 90 % effective training
  // time (Llama 3 team 2024, section 3.3.4); tp 8, pp 16, dp 128 (table 4); storage with 2 TB/s
  // (section 3.3.1). Detection and start are our defaults. Spare nodes: the cluster had 24,000 GPUs
  // (section 3.3.1).
  program::Plan plan;
  plan.model = models::load_preset("llama3.1-405b");
  plan.workload = {.seq_len = 8192, .global_batch_size = 2048};
  plan.parallel = {.tp = 8, .pp = 16, .dp = 128};
  plan.zero_stage = 1;
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 16384);
  const FailureAssumptions assumptions{.storage_gb_per_s = 2000, .spare_nodes = 64};
  CHECK(assumptions.device_mtbf_hours == Approx(50'677).epsilon(1e-4));
  const FailureStudy study =
      study_failures(plan, cluster, 5, assumptions, {.days = 54, .trials = 50});
  CHECK(study.play.failures == Approx(419).epsilon(0.02));
  CHECK(study.play.parts.useful == Approx(0.90).margin(0.03));
  CHECK(study.closed_form.goodput == Approx(study.play.parts.useful).margin(0.005));
  // Without spares 7.8 nodes are away on average, of 16 that a replica spans.
  FailureAssumptions alone = assumptions;
  alone.spare_nodes = 0;
  const FailureStudy without = study_failures(plan, cluster, 5, alone, {.days = 54, .trials = 50});
  CHECK(without.closed_form.goodput == Approx(without.play.parts.useful).margin(0.01));
  CHECK(without.play.parts.smaller > 0.01);
  // A partner's memory loses less work, and each spare node is more useful than paid for.
  CHECK(study.places.back().play->parts.lost < study.play.parts.lost);
  CHECK(study.spares[study.worth_having].spare_nodes > 0);
}

}  // namespace meshplan::planner
