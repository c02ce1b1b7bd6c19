// Clusters whose nodes are not all of one type.
#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/memory.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/plans.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

using Catch::Contains;

Cluster nodes(const std::string& preset, int count) {
  return with_ranks(load_cluster_preset(preset), 8 * count);
}

/// Sixteen ranks: one node of each.
Cluster h100_and_a100() {
  return joined({nodes("dgx-h100", 1), nodes("dgx-a100", 1)});
}

/// Communication takes no SMs from computation: where it does, a node that is ahead pays for it at
/// other times than one that is not, and parts of a percent are lost or won.
Cluster undisturbed(Cluster cluster) {
  cluster.communication.device_share = 0;
  return cluster;
}

/// Both nodes of the same type, but with the network that h100_and_a100() has.
Cluster two_nodes_of(const std::string& preset) {
  Cluster cluster = nodes(preset, 2);
  cluster.fabric.back() = h100_and_a100().fabric.back();
  return cluster;
}

/// Layers of llama3-8b, eight of them: large enough that devices differ, unlike launches.
program::Plan plan_of(program::ParallelConfig parallel, int num_microbatches) {
  program::Plan plan = tiny_plan(parallel, num_microbatches);
  plan.model = models::load_preset("llama3-8b");
  plan.model.num_layers = 8;
  plan.workload.seq_len = 1024;
  plan.workload.precision = DType::BF16;
  return plan;
}

std::vector<program::Plan> plans() {
  std::vector<program::Plan> all;
  for (const program::ParallelConfig& parallel : {program::ParallelConfig{.dp = 16},
                                                  {.tp = 2, .dp = 8, .sp = true},
                                                  {.tp = 2, .pp = 2, .dp = 4},
                                                  {.pp = 4, .dp = 4},
                                                  {.tp = 2, .pp = 4, .dp = 2, .sp = true},
                                                  {.cp = 2, .pp = 2, .dp = 4}})
    all.push_back(plan_of(parallel, 8));
  program::Plan sharded = plan_of({.tp = 2, .dp = 8}, 4);
  sharded.zero_stage = 1;
  all.push_back(sharded);
  program::Plan uneven = plan_of({.tp = 2, .pp = 2, .dp = 4}, 8);
  uneven.layers_per_stage = {6, 2};
  all.push_back(uneven);
  return all;
}

}  // namespace

TEST_CASE("Nodes are numbered in the order of the parts", "[sim][node_types]") {
  const Cluster cluster = joined({nodes("dgx-h100", 2), nodes("dgx-a100", 3)});
  CHECK(cluster.name == "dgx-h100:2+dgx-a100:3");
  CHECK(cluster.num_ranks() == 40);
  CHECK(num_node_types(cluster) == 2);
  CHECK(num_nodes_of(cluster, 0) == 2);
  CHECK(num_nodes_of(cluster, 1) == 3);
  CHECK(node_type(cluster, 15) == 0);
  CHECK(node_type(cluster, 16) == 1);
  CHECK(node_type(cluster, 39) == 1);
  CHECK(device_of(cluster, 1).name == load_cluster_preset("dgx-a100").device.name);
  // NVLink of each type inside its nodes, the slower network between them: 8 x HDR.
  CHECK(as_if_all(cluster, 0).fabric.front() == load_cluster_preset("dgx-h100").fabric.front());
  CHECK(as_if_all(cluster, 1).fabric.front() == load_cluster_preset("dgx-a100").fabric.front());
  CHECK(cluster.fabric.back().link_gb_per_s ==
        load_cluster_preset("dgx-a100").fabric.back().link_gb_per_s);
  CHECK(as_if_all(cluster, 1).num_ranks() == 40);
  CHECK(parse_cluster(to_json(cluster), "round trip") == cluster);
}

TEST_CASE("A stage knows the types of its nodes", "[sim][node_types]") {
  const Cluster cluster = h100_and_a100();
  using Types = std::vector<std::vector<int>>;
  CHECK(node_types(cluster, program::Mesh({.pp = 2, .dp = 8})) == Types{{0}, {1}});
  CHECK(node_types(cluster, program::Mesh({.tp = 8, .dp = 2})) == Types{{0, 1}});
  CHECK(node_types(cluster, program::Mesh({.pp = 2, .dp = 8}, "tp-cp-ep-pp-dp")) ==
        Types{{0, 1}, {0, 1}});
}

TEST_CASE("Clusters that cannot be joined say why", "[sim][node_types]") {
  const auto join = [](const std::string& one, const std::string& other) {
    return [=] { joined({load_cluster_preset(one), load_cluster_preset(other)}); };
  };
  CHECK_THROWS_WITH(join("dgx-h100", "gb200-nvl72")(),
                    Contains("devices of a node differ, 8 and 4"));
  CHECK_THROWS_WITH(join("cpu-host", "dgx-h100")(), Contains("both must hold GPUs"));
  CHECK_THROWS_WITH(joined({h100_and_a100(), nodes("dgx-h200", 1)}),
                    Contains("several types already"));
  CHECK_THROWS_WITH(with_ranks(h100_and_a100(), 8), Contains("say how many nodes of each type"));
  CHECK(with_ranks(h100_and_a100(), 16) == h100_and_a100());
}

TEST_CASE("A cluster file with other nodes is checked", "[sim][node_types]") {
  const auto error_of = [](const auto& change) -> std::string {
    Cluster cluster = h100_and_a100();
    change(cluster);
    try {
      parse_cluster(to_json(cluster), "c.json");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(error_of([](Cluster&) {}).empty());
  CHECK_THAT(error_of([](Cluster& c) { c.other_nodes[0].num_nodes = 2; }),
             Contains("c.json: other_nodes: 2 nodes") && Contains("got 2"));
  CHECK_THAT(error_of([](Cluster& c) { c.other_nodes[0].device.kind = DeviceKind::Cpu; }),
             Contains("other_nodes[0].device.kind"));
  CHECK_THAT(error_of([](Cluster& c) { c.other_nodes[0].device.peak_tflop_per_s.clear(); }),
             Contains("other_nodes[0].device.peak_tflop_per_s"));
  CHECK_THAT(error_of([](Cluster& c) { c.other_nodes[0].inside[0].ranks_per_group = 4; }),
             Contains("other_nodes[0].inside[0].ranks_per_group: got 4, expected 8"));
  CHECK_THAT(error_of([](Cluster& c) { c.other_nodes[0].inside.push_back(c.fabric.back()); }),
             Contains("other_nodes[0].inside[1]") && Contains("not inside a node"));
}

TEST_CASE("Two parts of one type are that type", "[sim][node_types]") {
  const Cluster two = joined({nodes("dgx-h100", 1), nodes("dgx-h100", 1)});
  const Cluster one = nodes("dgx-h100", 2);
  Estimator of_two(two), of_one(one);
  for (const program::Plan& plan : plans()) {
    INFO(to_string(plan.parallel));
    CHECK(played(plan, two) == played(plan, one));
    CHECK(of_two.estimate(plan).step_time_s == of_one.estimate(plan).step_time_s);
    CHECK(of_two.estimate(plan).peak_memory_bytes == of_one.estimate(plan).peak_memory_bytes);
    CHECK(of_two.estimate(plan).mfu == Approx(of_one.estimate(plan).mfu));
  }
}

TEST_CASE("Replicas on two node types go at the pace of the slower one", "[sim][node_types]") {
  for (const program::Plan& plan : plans()) {
    if (plan.parallel.pp > 1) continue;
    INFO(to_string(plan.parallel));
    CHECK(played(plan, undisturbed(h100_and_a100())) ==
          Approx(played(plan, undisturbed(two_nodes_of("dgx-a100")))).epsilon(1e-6));
    CHECK(played(plan, h100_and_a100()) ==
          Approx(played(plan, two_nodes_of("dgx-a100"))).epsilon(1e-3));
  }
}

TEST_CASE("Mixed nodes lie between nodes of either type", "[sim][node_types]") {
  for (const program::Plan& plan : plans()) {
    INFO(to_string(plan.parallel));
    const double mixed = played(plan, undisturbed(h100_and_a100()));
    const double slow = played(plan, undisturbed(two_nodes_of("dgx-a100")));
    const double fast = played(plan, undisturbed(two_nodes_of("dgx-h100")));
    CHECK(slow > 1.5 * fast);
    CHECK(mixed <= slow * (1 + 1e-9));
    CHECK(mixed >= fast * (1 - 1e-9));
  }
}

TEST_CASE("The estimate on mixed nodes equals the engine", "[sim][node_types][estimator]") {
  const Cluster cluster = undisturbed(h100_and_a100());
  Estimator estimator(cluster);
  for (const program::Plan& plan : plans()) {
    INFO(to_string(plan.parallel));
    const StepPrediction estimate = estimator.estimate(plan);
    CHECK(estimate.step_time_s == Approx(played(plan, cluster)).epsilon(kEstimatorTolerance));
    const MemoryReport memory = memory_report(program::lower_all(plan), cluster);
    CHECK(estimate.peak_memory_bytes == Approx(memory.peak_bytes).epsilon(0.1));
    CHECK(estimate.capacity_bytes == memory.capacity_bytes);
    CHECK(estimate.largest_stage == memory.largest_stage);
  }
}

TEST_CASE("Memory is short where the devices are small", "[sim][node_types]") {
  Cluster cluster = joined({nodes("dgx-a100", 1), nodes("a100-40g-generic", 1)});
  const program::Plan plan = tiny_plan({.pp = 2, .dp = 8}, 8);
  const MemoryReport memory = memory_report(program::lower_all(plan), cluster);
  CHECK(memory.stages[0].capacity == memory_capacity_bytes(nodes("dgx-a100", 1)));
  CHECK(memory.stages[1].capacity == memory_capacity_bytes(nodes("a100-40g-generic", 1)));
  // The second stage keeps fewer micro-batches than the first, and has half the memory.
  CHECK(memory.stages[1].total() < memory.stages[0].total());
  CHECK(memory.largest_stage == 1);
  CHECK(memory.capacity_bytes == memory.stages[1].capacity);
  cluster.other_nodes[0].device.memory_gib = 0.9 * memory.stages[1].total() / (1 << 30);
  CHECK_FALSE(memory_report(program::lower_all(plan), cluster).fits());
  CHECK_FALSE(Estimator(cluster).estimate(plan).fits());
}

TEST_CASE("MFU on mixed nodes divides by the mean peak", "[sim][node_types]") {
  const program::Workload workload{.precision = DType::BF16};
  CHECK(peak_flop_per_s(h100_and_a100(), workload) == Approx((989.4e12 + 312e12) / 2));
  program::Workload fp8 = workload;
  fp8.fp8 = program::Float8Recipe::Hybrid;
  CHECK_THROWS_WITH(peak_flop_per_s(h100_and_a100(), fp8), Contains("A100") && Contains("FP8"));
}

}  // namespace meshplan::sim
