#include "sim/clusters/what_if.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "program/checks/check.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/plans.hpp"
#include "sim/random_plans.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/software.hpp"
#include "support/cases.hpp"

using Catch::Matchers::Contains;

namespace meshplan::sim {
namespace {

Cluster two_nodes() {
  return with_ranks(load_cluster_preset("dgx-h100"), 16);
}

program::Plan plan_on_two_nodes() {
  program::Plan plan = tiny_plan({.tp = 2, .pp = 2, .dp = 4, .sp = true}, 8);
  plan.workload.precision = DType::BF16;
  return plan;
}

double seconds(const program::Plan& plan, const Cluster& cluster,
               const std::string& software = std::string(kOwnSoftware)) {
  return Estimator(cluster, software).estimate(on_stack(plan, software)).step_time_s;
}

}  // namespace

TEST_CASE("a figure scales what it names and nothing else", "[sim][what-if]") {
  const Cluster cluster = two_nodes();
  Cluster expected = cluster;
  expected.fabric[1].link_gb_per_s /= 2;
  CHECK(scaled(cluster, "network", 0.5) == expected);
  CHECK(scaled(cluster, "infiniband-ndr", 0.5) == expected);
  CHECK(scaled(cluster, "infiniband-ndr.bandwidth", 0.5) == expected);
  expected = cluster;
  expected.fabric[0].latency_us *= 3;
  CHECK(scaled(cluster, "nvlink.latency", 3) == expected);
  expected.fabric[1].latency_us *= 3;
  CHECK(scaled(cluster, "latency", 3) == expected);
  expected = cluster;
  expected.device.memory_gib *= 2;
  CHECK(scaled(cluster, "memory", 2) == expected);
  CHECK_THROWS_WITH(scaled(cluster, "netwrok", 2), Contains("did you mean 'network'?"));
}

TEST_CASE("nodes of all types are scaled", "[sim][what-if]") {
  const Cluster mixed = joined({two_nodes(), with_ranks(load_cluster_preset("dgx-a100"), 8)});
  const Cluster changed = scaled(scaled(mixed, "flops", 2), "nvlink", 3);
  CHECK(changed.other_nodes[0].device.peak_tflop_per_s.at("bf16") ==
        2 * mixed.other_nodes[0].device.peak_tflop_per_s.at("bf16"));
  CHECK(changed.other_nodes[0].inside[0].link_gb_per_s ==
        3 * mixed.other_nodes[0].inside[0].link_gb_per_s);
}

TEST_CASE("what was measured scales with what it depends on", "[sim][what-if]") {
  Cluster host = cpu_host(4, 4);
  host.operators = {{.signature = "linear.forward fp32 m=1 n=1 k=1", .seconds = 4},
                    {.signature = "rms_norm.forward fp32 1", .seconds = 6, .seconds_busy = 8}};
  const auto all_reduce = [](std::int64_t bytes, double took) {
    return MeasuredCollective{
        .op = "all_reduce", .group_size = 4, .ranks_on_host = 4, .bytes = bytes, .seconds = took};
  };
  host.collectives = {all_reduce(8, 1), all_reduce(1 << 20, 5)};
  CHECK(scaled(host, "flops", 2).operators[0].seconds == 2);
  CHECK(scaled(host, "flops", 2).operators[1].seconds == 6);
  CHECK(scaled(host, "memory_bandwidth", 2).operators[0].seconds == 4);
  CHECK(scaled(host, "memory_bandwidth", 2).operators[1].seconds_busy == 4);
  const std::string level = host.fabric.front().name;
  CHECK(scaled(host, level, 2).collectives[0].seconds == 1);
  CHECK(scaled(host, level, 2).collectives[1].seconds == 3);
  CHECK(scaled(host, level + ".latency", 2).collectives[0].seconds == 2);
  CHECK(scaled(host, level + ".latency", 2).collectives[1].seconds == 6);
}

TEST_CASE("settings are figures with factors, or values of the file", "[sim][what-if]") {
  const Cluster cluster = two_nodes();
  const ChangedCluster changed =
      change_cluster(cluster, {"network=0.5", "cluster.device.memory_gib=141"});
  CHECK(changed.cluster.fabric[1].link_gb_per_s == cluster.fabric[1].link_gb_per_s / 2);
  CHECK(changed.cluster.device.memory_gib == 141);
  CHECK(changed.cluster.name == "dgx-h100 (network=0.5, device.memory_gib=141)");
  CHECK(changed.changes == std::vector<std::string>{"device.memory_gib: 79.6 -> 141.0",
                                                    "fabric[1].link_gb_per_s: 48.0 -> 24.0"});
  CHECK(change_cluster(cluster, {"fabric[0].latency_us=9"}).cluster.fabric[0].latency_us == 9);
  CHECK(change_cluster(cluster, {"flops=1"}).cluster == cluster);
  CHECK_THROWS_WITH(change_cluster(cluster, {"network"}), Contains("FIGURE=FACTOR"));
  CHECK_THROWS_WITH(change_cluster(cluster, {"network=fast"}), Contains("a factor from 0.001"));
  CHECK_THROWS_WITH(change_cluster(cluster, {"network=-1"}), Contains("a factor from 0.001"));
  CHECK_THROWS_WITH(change_cluster(cluster, {"network=nan"}), Contains("a factor from 0.001"));
  CHECK_THROWS_WITH(change_cluster(cluster, {"device.memory_gb=1"}),
                    Contains("did you mean 'device.memory_gib'?"));
  CHECK_THROWS_WITH(change_cluster(cluster, {"device.efficiency.gemm=7"}),
                    Contains("device.efficiency.gemm") && Contains("at most 1"));
  CHECK_THROWS_AS(change_cluster(cluster, {"device.memory_gib=[1]"}), ConfigError);
}

TEST_CASE("what a setting is of follows from its name", "[sim][what-if]") {
  const Cluster cluster = two_nodes();
  for (const char* key : {"network", "nvlink.latency", "device.memory_gib", "fabric[0].latency_us",
                          "cluster.jitter", "num_nodes", "device.nothing"})
    CHECK(is_of_cluster(cluster, key));
  for (const char* key : {"parallel.tp", "micro_batch_size", "recompute.kind", "schema_version",
                          "model.hidden_size", "netwrok"})
    CHECK_FALSE(is_of_cluster(cluster, key));
}

TEST_CASE("on a cluster that is faster in everything a step takes so much less", "[sim][what-if]") {
  constexpr double kFaster = 3;
  Cluster cluster = two_nodes();
  cluster.communication.offers.clear();  // whose latencies are the library's
  Cluster faster = scaled(scaled(cluster, "flops", kFaster), "memory_bandwidth", kFaster);
  for (const char* level : {"nvlink", "infiniband-ndr"}) faster = scaled(faster, level, kFaster);
  faster = scaled(faster, "latency", 1 / kFaster);
  for (double* time :
       {&faster.device.launch_us, &faster.device.host_issue_us, &faster.step_overhead_ms})
    *time /= kFaster;
  for (Protocol& protocol : faster.communication.protocols) protocol.base_us /= kFaster;
  const program::Plan plan = plan_on_two_nodes();
  CHECK(seconds(plan, faster) == Approx(seconds(plan, cluster) / kFaster).epsilon(1e-9));
  CHECK(simulate_step(plan, faster).step.step_time_s ==
        Approx(simulate_step(plan, cluster).step.step_time_s / kFaster).epsilon(1e-6));
}

TEST_CASE("less of a figure never makes a plan faster", "[sim][what-if]") {
  const int kPlans = testing::random_cases(80);
  // A schedule's stages may wait for each other in another order; what was hidden may not be.
  constexpr double kReordered = 1e-3;
  testing::Random random(11);
  int slowed = 0;
  for (int i = 0; i < kPlans; ++i) {
    const RandomPlan one = random_plan(random);
    const double before = seconds(one.plan, one.cluster);
    for (const std::string& figure : separate_figures(one.cluster)) {
      const bool latency = figure.ends_with(".latency");
      INFO(to_string(one.plan.parallel) << " on " << one.cluster.name << ", " << figure);
      const double after = seconds(one.plan, scaled(one.cluster, figure, latency ? 2 : 0.5));
      CHECK(after >= before * (1 - kReordered));
      if (after > before) ++slowed;
    }
  }
  CHECK(slowed > kPlans);
}

TEST_CASE("runs of other software notice figures, not what is fitted for them", "[sim][what-if]") {
  const Cluster cluster = two_nodes();
  program::Plan plan = plan_on_two_nodes();
  plan.zero_stage = 1;
  REQUIRE(software_violations(on_stack(plan, "megatron-core")).empty());
  const double before = seconds(plan, cluster, "megatron-core");
  Cluster renamed = cluster;
  renamed.name = "dgx-h100 (so to speak)";  // no preset's, so its data sheet is itself
  CHECK(seconds(plan, renamed, "megatron-core") == before);
  CHECK(seconds(plan, scaled(cluster, "network", 0.25), "megatron-core") > before);
  CHECK(equal_beside_fitted_speeds(cluster, renamed));
  CHECK_FALSE(equal_beside_fitted_speeds(cluster, scaled(cluster, "network", 0.25)));
  Cluster tuned = cluster;
  tuned.device.efficiency.gemm = 0.9;
  CHECK(equal_beside_fitted_speeds(cluster, tuned));
  CHECK(seconds(plan, tuned, "megatron-core") == before);
}

}  // namespace meshplan::sim
