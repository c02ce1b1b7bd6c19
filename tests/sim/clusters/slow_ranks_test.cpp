// Ranks that compute more slowly than others of their type.
#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "program/cost/cost.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/engine.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/plans.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/run_prediction.hpp"

namespace meshplan::sim {
namespace {

using Catch::Contains;

Cluster with_slow(Cluster cluster, std::vector<SlowRank> slow) {
  cluster.slow_ranks = std::move(slow);
  return cluster;
}

/// Nothing but what devices compute takes time: a step is as long as its operations.
Cluster only_computing(int ranks) {
  Cluster cluster = free_communication(ranks);
  cluster.jitter = 0;
  cluster.step_overhead_ms = 0;
  cluster.device.launch_us = 2;
  return cluster;
}

/// Eight layers of llama3-8b.
program::Plan eight_layers(program::ParallelConfig parallel, int num_microbatches) {
  program::Plan plan = tiny_plan(parallel, num_microbatches);
  plan.model = models::load_preset("llama3-8b");
  plan.model.num_layers = 8;
  plan.workload.seq_len = 1024;
  plan.workload.precision = DType::BF16;
  return plan;
}

std::vector<program::Plan> plans_with_slow_ranks() {
  std::vector<program::Plan> all;
  for (const program::ParallelConfig& parallel : {program::ParallelConfig{.dp = 8},
                                                  {.tp = 2, .dp = 4, .sp = true},
                                                  {.tp = 2, .pp = 2, .dp = 2},
                                                  {.pp = 4, .dp = 2},
                                                  {.tp = 2, .pp = 4, .sp = true}})
    all.push_back(eight_layers(parallel, 8));
  program::Plan sharded = eight_layers({.tp = 2, .dp = 4}, 4);
  sharded.zero_stage = 1;
  all.push_back(sharded);
  program::Plan uneven = eight_layers({.pp = 4, .dp = 2}, 8);
  uneven.layers_per_stage = {3, 2, 1, 2};
  all.push_back(uneven);
  return all;
}

}  // namespace

TEST_CASE("A slow rank is a type of its own", "[sim][slow_ranks]") {
  const Cluster cluster = with_slow(with_ranks(load_cluster_preset("dgx-h100"), 8),
                                    {{1, 1.0}, {3, 2.0}, {5, 1.5}, {6, 2.0}});
  CHECK(num_node_types(cluster) == 1);
  CHECK(num_types(cluster) == 3);
  CHECK(node_type(cluster, 0) == 0);
  CHECK(node_type(cluster, 1) == 0);  // once as long is not slow
  CHECK(node_type(cluster, 5) == 1);
  CHECK(node_type(cluster, 3) == 2);
  CHECK(node_type(cluster, 6) == 2);
  const Cluster slow = as_if_all(cluster, 2);
  CHECK(slow.slow_ranks.empty());
  CHECK(slow.device.launch_us == 2 * cluster.device.launch_us);
  CHECK(peak_flop_per_s(slow, DType::BF16) == peak_flop_per_s(cluster, DType::BF16) / 2);
  CHECK(slow.fabric == cluster.fabric);
  CHECK(device_of(cluster, 2) == cluster.device);
  using Types = std::vector<std::vector<int>>;
  CHECK(node_types(cluster, program::Mesh({.pp = 4, .dp = 2})) ==
        Types{{0}, {0, 2}, {0, 1}, {0, 2}});
}

TEST_CASE("A slow rank stays on its node, whatever order nodes are laid out in",
          "[sim][slow_ranks]") {
  const auto node = [](const std::string& preset) {
    return with_ranks(load_cluster_preset(preset), 8);
  };
  const Cluster mixed =
      joined({node("dgx-h100"), with_slow(node("dgx-a100"), {{2, 1.5}, {7, 3.0}})});
  CHECK(mixed.slow_ranks == std::vector<SlowRank>{{10, 1.5}, {15, 3.0}});
  CHECK(num_types(mixed) == 4);
  CHECK(node_type(mixed, 10) == 2);
  CHECK(device_of(mixed, 2).name == node("dgx-a100").device.name);
  CHECK(in_node_order(mixed, {1, 0}).slow_ranks == std::vector<SlowRank>{{2, 1.5}, {7, 3.0}});
  CHECK(in_node_order(in_node_order(mixed, {1, 0}), {1, 0}) == mixed);
  CHECK(with_ranks(with_slow(node("dgx-h100"), {{1, 2.0}, {5, 2.0}}), 4).slow_ranks ==
        std::vector<SlowRank>{{1, 2.0}});
}

TEST_CASE("A cluster file with slow ranks is checked", "[sim][slow_ranks]") {
  const Cluster quick = with_ranks(load_cluster_preset("dgx-h100"), 8);
  const Cluster slow = parse_cluster(to_json(with_slow(quick, {{3, 1.5}})), "slow");
  CHECK(slow.slow_ranks == std::vector<SlowRank>{{3, 1.5}});
  CHECK_THAT(to_json(quick), !Contains("slow_ranks"));
  CHECK(hash_of(slow) != hash_of(quick));
  CHECK(hash_of(slow) != hash_of(with_slow(quick, {{3, 1.6}})));
  const auto error_of = [&](std::vector<SlowRank> ranks) -> std::string {
    try {
      parse_cluster(to_json(with_slow(quick, std::move(ranks))), "slow");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK_THAT(error_of({{8, 2.0}}),
             Contains("slow: slow_ranks[0].rank: got 8") && Contains("0 to 7"));
  CHECK_THAT(error_of({{3, 2.0}, {3, 2.0}}),
             Contains("slow_ranks[1].rank: got 3 behind 3") && Contains("ascend"));
  CHECK_THAT(error_of({{3, 0.5}}), Contains("slow_ranks[0].times") && Contains("0.5"));
  CHECK_THAT(error_of({{-1, 2.0}}), Contains("slow_ranks[0].rank"));
}

TEST_CASE("Twice as slow, a rank alone takes twice as long", "[sim][slow_ranks]") {
  const program::Plan plan = eight_layers({}, 4);
  const Cluster quick = only_computing(1);
  const Cluster slow = with_slow(quick, {{0, 2.0}});
  CHECK(played(plan, slow) == Approx(2 * played(plan, quick)).epsilon(1e-9));
  CHECK(Estimator(slow).estimate(plan).step_time_s ==
        Approx(2 * Estimator(quick).estimate(plan).step_time_s).epsilon(1e-9));
}

TEST_CASE("Measured operators take longer on a slow rank, and collectives do not",
          "[sim][slow_ranks]") {
  const program::Plan plan = tiny_plan({.tp = 2, .dp = 2}, 2);
  const std::vector<program::Program> programs = program::lower_all(plan);
  Cluster cluster = cpu_host(4, 4);
  const program::Mesh mesh = program::mesh_of(plan);
  // The first product as measured, all others interpolated from it or by formula.
  for (const program::OperationInstance& instance : programs.front().instances)
    if (const std::string signature = program::signature(programs.front(), instance);
        signature.starts_with("linear.forward")) {
      cluster.operators = {{.signature = signature, .seconds = 0.01, .flops = 1e6, .bytes = 1e5}};
      break;
    }
  REQUIRE(cluster.operators.size() == 1);
  const Cluster slow = with_slow(cluster, {{1, 3.0}});
  const ProgramPrices quick_prices = price_program(programs.front(), 1, mesh, cluster);
  const ProgramPrices slow_prices = price_program(programs.front(), 1, mesh, slow);
  int measured = 0;
  for (std::size_t i = 0; i < programs.front().instances.size(); ++i) {
    const program::Operation& operation =
        program::operation_of(programs.front(), programs.front().instances[i]);
    INFO(program::text_of(programs.front(), programs.front().instances[i]));
    const double times = program::collective_of(operation) != nullptr ? 1 : 3;
    CHECK(slow_prices.of(i).seconds == Approx(times * quick_prices.of(i).seconds));
    CHECK(slow_prices.of(i).source == quick_prices.of(i).source);
    measured += quick_prices.of(i).source == PriceSource::Measured ? 1 : 0;
  }
  CHECK(measured > 0);
  const ProgramPrices other = price_program(programs.front(), 0, mesh, slow);
  CHECK(other.of(3).seconds == price_program(programs.front(), 0, mesh, cluster).of(3).seconds);
}

TEST_CASE("Replicas go at the pace of the slow one", "[sim][slow_ranks]") {
  const Cluster cluster = only_computing(4);
  const Cluster one_slow = with_slow(cluster, {{2, 1.5}});
  const Cluster all_slow = with_slow(cluster, {{0, 1.5}, {1, 1.5}, {2, 1.5}, {3, 1.5}});
  for (const program::ParallelConfig& parallel :
       {program::ParallelConfig{.dp = 4}, {.tp = 2, .dp = 2}}) {
    const program::Plan plan = eight_layers(parallel, 4);
    INFO(to_string(plan.parallel));
    CHECK(played(plan, one_slow) == Approx(played(plan, all_slow)).epsilon(1e-9));
    CHECK(played(plan, one_slow) == Approx(1.5 * played(plan, cluster)).epsilon(1e-6));
    CHECK(Estimator(one_slow).estimate(plan).step_time_s ==
          Estimator(all_slow).estimate(plan).step_time_s);
  }
}

TEST_CASE("Further micro-batches cost what the slow stage takes for them", "[sim][slow_ranks]") {
  // Beyond the filling of a pipeline each micro-batch adds the work of the slowest stage alone.
  const auto added = [](double times) {
    const Cluster cluster = with_slow(only_computing(4), {{1, times}});
    return played(eight_layers({.pp = 4}, 24), cluster) -
           played(eight_layers({.pp = 4}, 16), cluster);
  };
  CHECK(added(20) == Approx(2 * added(10)).epsilon(1e-6));
}

TEST_CASE("The estimate with slow ranks equals the engine", "[sim][slow_ranks][estimator]") {
  Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 8);
  cluster.communication.device_share = 0;  // as of nodes of several types
  for (const std::vector<SlowRank>& slow :
       {std::vector<SlowRank>{{5, 1.5}}, {{0, 3.0}}, {{2, 1.3}, {3, 1.3}, {7, 2.0}}}) {
    const Cluster some_slow = with_slow(cluster, slow);
    Estimator estimator(some_slow);
    for (const program::Plan& plan : plans_with_slow_ranks()) {
      INFO(to_string(plan.parallel) << ", " << slow.size() << " slow, first " << slow.front().rank);
      const StepPrediction estimate = estimator.estimate(plan);
      CHECK(estimate.step_time_s == Approx(played(plan, some_slow)).epsilon(kEstimatorTolerance));
      CHECK(estimate.step_time_s > Estimator(cluster).estimate(plan).step_time_s);
      const MemoryReport memory = memory_report(program::lower_all(plan), some_slow);
      CHECK(estimate.capacity_bytes == memory.capacity_bytes);
    }
  }
}

TEST_CASE("Folding keeps slow ranks apart from quick ones", "[sim][slow_ranks]") {
  const Cluster cluster = with_slow(with_ranks(load_cluster_preset("dgx-h100"), 8), {{6, 1.7}});
  for (const program::Plan& plan : plans_with_slow_ranks()) {
    INFO(to_string(plan.parallel));
    const std::vector<program::Program> programs = program::lower_all(plan);
    CHECK(simulate(programs, cluster, {.fold = true, .record_spans = false}).step_time_s ==
          Approx(simulate(programs, cluster, {.fold = false, .record_spans = false}).step_time_s)
              .epsilon(1e-9));
  }
}

TEST_CASE("Slowness is no part of what a step is compared with", "[sim][slow_ranks]") {
  const Cluster quick = only_computing(1);
  const program::Plan plan = eight_layers({}, 2);
  const Cluster slow = with_slow(quick, {{0, 2.0}});
  CHECK(model_flops_utilization(plan, slow, 1.0) == model_flops_utilization(plan, quick, 1.0));
}

TEST_CASE("Other software is not predicted with slow ranks", "[sim][slow_ranks]") {
  const Cluster cluster = with_slow(with_ranks(load_data_sheet("dgx-h100"), 8), {{6, 1.7}});
  TrainingRun run;
  run.profile = "megatron-core";
  run.model = models::load_preset("llama3-8b");
  CHECK_THROWS_WITH(PreparedRun(run, cluster), Contains("slow ranks") && Contains("megatron-core"));
}

}  // namespace meshplan::sim
