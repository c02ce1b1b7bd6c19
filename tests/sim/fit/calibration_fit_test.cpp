#include "sim/fit/calibration_fit.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "core/units.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::CommOp;

/// A host of 2 cores: 50 GFLOP/s products, messages of 2 us + m / 4 GB/s.
program::CalibrationSamples two_cores() {
  program::CalibrationSamples job;
  job.hostname = "bench";
  job.processor = "a core";
  job.ranks = 2;
  job.cores = 2;
  job.memory_bytes = 8 * kGib;
  job.process_bytes = 30 * kMib;
  job.memory_rate = 10e9;
  job.host_memory_rate = 16e9;
  job.operators = {{.signature = "linear.forward fp32 t=64 out=64 in=64",
                    .seconds = 2.0 * 64 * 64 * 64 / 50e9,
                    .seconds_busy = 2.0 * 64 * 64 * 64 / 40e9,
                    .flops = 2.0 * 64 * 64 * 64,
                    .bytes = 3.0 * 64 * 64 * 4},
                   {.signature = "attention.forward fp32 b=1 s=64 h=2 k=2 e=32 causal",
                    .seconds = 1e-5,
                    .flops = 1e5,
                    .bytes = 1e4}};
  for (const std::int64_t bytes : {8, 1024, 65536, 1 << 20})
    job.links.push_back(
        {.from = 0, .to = 1, .bytes = bytes, .seconds = 2e-6 + static_cast<double>(bytes) / 4e9});
  job.communication = {{.op = CommOp::AllReduce, .group_size = 2, .bytes = 4096, .seconds = 9e-6}};
  return job;
}

}  // namespace

TEST_CASE("Latency and bandwidth are recovered from exact messages", "[sim][calibration_fit]") {
  std::vector<TimedMessage> messages;
  for (const double bytes : {8.0, 4096.0, 1e6, 64e6})
    messages.push_back({bytes, 3e-6 + bytes / 5e9});
  const AlphaBeta fitted = fit_alpha_beta(messages);
  CHECK(fitted.latency_s == Approx(3e-6));
  CHECK(fitted.seconds_per_byte == Approx(1 / 5e9));
}

// 2 ranks compute 1 ms beside an all-reduce of 4 ms. With 4 cores they hide it: 5 ms are 25 % too
// long. With 2 cores nothing is hidden: 1 + 4 ms, and 6 ms are 25 % of the all-reduce too long.
// With 3 cores both run at 3/4 for 4/3 ms, then 3 ms are left, so 4/3 + 3 + 1.
TEST_CASE("What a progress thread costs is what is left of the time together",
          "[sim][calibration_fit]") {
  const auto [cores, together] =
      GENERATE(table<int, double>({{4, 5e-3}, {2, 6e-3}, {3, (4.0 / 3 + 3 + 1) * 1e-3}}));
  program::CalibrationSamples job = two_cores();
  CHECK(fit_cluster({job}).communication.progress_overhead_percent == 0);
  job.progress = {{.ranks_on_host = 2,
                   .cores_on_host = cores,
                   .bytes = 1 << 20,
                   .compute_seconds = 1e-3,
                   .communication_seconds = 4e-3,
                   .together_seconds = together}};
  CHECK(fit_cluster({job}).communication.progress_overhead_percent == 25);
}

TEST_CASE("A fit never has a negative latency or bandwidth", "[sim][calibration_fit]") {
  const AlphaBeta no_latency = fit_alpha_beta({{1000, 1e-7}, {1e6, 2e-3}});
  CHECK(no_latency.latency_s == 0);
  CHECK(no_latency.seconds_per_byte > 0);
  const AlphaBeta no_slope = fit_alpha_beta({{1000, 2e-6}, {1e6, 1e-6}});
  CHECK(no_slope.seconds_per_byte == 0);
  CHECK(fit_alpha_beta({{8, 2e-6}}).latency_s == Approx(2e-6));
}

TEST_CASE("A fitted cluster keeps the reference speed and noise of the job that timed operators",
          "[sim][calibration_fit]") {
  program::CalibrationSamples first = two_cores(), second = two_cores();
  first.quietness = {
      .reference_s = 2e-5, .reference_busy_s = 3e-5, .noise = 0.01, .noise_busy = 0.1};
  second.operators.clear();  // communication alone, with more ranks
  CHECK(fit_cluster({first, second}).reference ==
        ReferenceSpeed{.seconds = 2e-5, .seconds_busy = 3e-5});
  CHECK(fit_cluster({first, second}).noise == Noise{.one_rank = 0.01, .all_cores = 0.1});
  CHECK(fit_cluster({two_cores()}).reference == ReferenceSpeed{});
}

TEST_CASE("A fitted cluster gives its measurements back", "[sim][calibration_fit]") {
  const Cluster cluster = fit_cluster({two_cores()});
  CHECK(cluster.name == "bench");
  CHECK(cluster.num_ranks() == 2);
  CHECK(cluster.cores_per_host == 2);
  CHECK(cluster.communication.needs_host);
  CHECK(cluster.device.kind == DeviceKind::Cpu);
  CHECK(cluster.device.memory_gib == Approx(8));
  CHECK(cluster.device.runtime_base_mib == Approx(30));
  CHECK(peak_flop_per_s(cluster, DType::F32) == Approx(50e9));
  CHECK(cluster.device.efficiency.attention_forward == Approx(0.2));  // 1e5 / 1e-5 of 50 GFLOP/s
  CHECK(cluster.host_memory_gb_per_s == Approx(16));
  REQUIRE(cluster.fabric.size() == 1);
  CHECK(cluster.fabric.front().latency_us == Approx(2));
  CHECK(cluster.fabric.front().link_gb_per_s == Approx(4));
  REQUIRE(cluster.operators.size() == 2);
  const GroupPlacement pair = place(cluster, {0, 1});
  CHECK(price_collective(program::Collective::AllReduce, 4096, pair, cluster).seconds ==
        Approx(9e-6));
  CHECK(price_transfer(1024, pair, cluster).seconds == Approx(2e-6 + 1024 / 4e9));
}

TEST_CASE("Messages of cold buffers are rows of their own, and say nothing of links",
          "[sim][calibration_fit]") {
  program::CalibrationSamples job = two_cores();
  const Cluster warm = fit_cluster({job});
  job.communication.push_back(
      {.op = CommOp::AllReduce, .group_size = 2, .bytes = 4096, .cold = true, .seconds = 3e-5});
  const Cluster both = fit_cluster({job});
  CHECK(both.fabric == warm.fabric);
  REQUIRE(both.collectives.size() == warm.collectives.size() + 1);
  const program::Mesh mesh({.dp = 2});
  const auto seconds = [&](const GroupPlacement& placement) {
    return price_collective(program::Collective::AllReduce, 4096, placement, both).seconds;
  };
  CHECK(seconds(place(both, {0, 1})) == Approx(9e-6));
  CHECK(seconds(place(both, mesh, program::Group::DpCp, 0)) == Approx(3e-5));
}

TEST_CASE("A fitted cluster survives a round trip", "[sim][calibration_fit]") {
  program::CalibrationSamples job = two_cores();
  job.communication.push_back(
      {.op = CommOp::AllGather, .group_size = 2, .bytes = 4096, .cold = true, .seconds = 3e-5});
  const Cluster cluster = fit_cluster({job});
  const Cluster again = parse_cluster(to_json(cluster), "round trip");
  CHECK(to_json(again) == to_json(cluster));
}

// 4 ranks on 2 cores: 802 us for 8 bytes, two rounds of log2(4); 802 / 2 - 2 us of latency = 399
// us.
TEST_CASE("The time to wake up comes from small collectives on too few cores",
          "[sim][calibration_fit]") {
  auto crowded = two_cores();
  crowded.ranks = 4;
  crowded.communication = {{.op = CommOp::AllReduce,
                            .group_size = 4,
                            .ranks_on_host = 4,
                            .cores_on_host = 2,
                            .bytes = 8,
                            .seconds = 802e-6}};
  const Cluster cluster = fit_cluster({two_cores(), crowded});
  CHECK(cluster.num_ranks() == 4);
  CHECK(cluster.communication.oversubscription_wake_us == Approx(399));
  CHECK(fit_cluster({two_cores()}).communication.oversubscription_wake_us == 0);
}

TEST_CASE("Between hosts the network is a level of its own", "[sim][calibration_fit]") {
  auto job = two_cores();
  job.ranks = 4;
  job.num_machines = 2;
  for (const std::int64_t bytes : {8, 1 << 20})
    job.links.push_back({.from = 0,
                         .to = 2,
                         .same_host = false,
                         .bytes = bytes,
                         .seconds = 50e-6 + static_cast<double>(bytes) / 1e9});
  const Cluster cluster = fit_cluster({job});
  CHECK(cluster.num_nodes == 2);
  REQUIRE(cluster.fabric.size() == 2);
  CHECK(cluster.fabric[0].ranks_per_group == 2);
  CHECK(cluster.fabric[1].latency_us == Approx(50));
  CHECK(cluster.fabric[1].ranks_per_link == 2);
  CHECK_NOTHROW(parse_cluster(to_json(cluster), "two hosts"));
}

TEST_CASE("Samples that say too little are refused", "[sim][calibration_fit]") {
  CHECK_THROWS_AS(fit_cluster({}), ConfigError);
  auto no_products = two_cores();
  no_products.operators.erase(no_products.operators.begin());
  CHECK_THROWS_WITH(fit_cluster({no_products}), Catch::Contains("linear"));
  auto no_fabric = two_cores();
  no_fabric.links.clear();
  no_fabric.communication.clear();
  CHECK_THROWS_WITH(fit_cluster({no_fabric}), Catch::Contains("link"));
}

namespace {

/// Two GPUs of 400 TFLOP/s and 2 TB/s that launch in 3 us, joined by links of 5 us + m / 150 GB/s.
program::CalibrationSamples two_gpus() {
  constexpr double kLaunch = 3e-6;
  constexpr double kStart = 1e-6;  // of a copy, beyond the launch
  program::CalibrationSamples job;
  job.hostname = "box";
  job.ranks = 2;
  job.cores = 1;  // fewer than ranks: no matter, for nobody waits on a core
  job.memory_rate = 2e12;
  job.host_memory_rate = 4e12;
  job.device_driven = true;
  job.launch = {.device_seconds = kLaunch, .queued_seconds = 4e-6, .host_seconds = 2.5e-6};
  for (const char* other : {"0000:02:00.0", "0000:01:00.0"})
    job.gpus.push_back({.name = "a GPU",
                        .capability = "9.0",
                        .num_units = 132,
                        .memory_bytes = 80 * kGib,
                        .process_bytes = 500 * kMib,
                        .peers = {{.pci_bus = other, .access = true, .native_atomics = true}}});
  for (const std::int64_t bytes : {1 << 12, 1 << 20, 1 << 28})
    job.copies.push_back({"device_to_device", bytes,
                          kLaunch + kStart + 2 * static_cast<double>(bytes) / job.memory_rate});
  job.operators = {{.signature = "linear.forward bf16 t=4096 out=4096 in=4096",
                    .seconds = 2.0 * 4096 * 4096 * 4096 / 400e12,
                    .flops = 2.0 * 4096 * 4096 * 4096,
                    .bytes = 3.0 * 4096 * 4096 * 2}};
  for (const std::int64_t bytes : {8, 1 << 20, 1 << 28})
    job.links.push_back(
        {.from = 0, .to = 1, .bytes = bytes, .seconds = 5e-6 + static_cast<double>(bytes) / 150e9});
  return job;
}

}  // namespace

TEST_CASE("A calibration of GPUs gives a cluster of GPUs", "[sim][calibration_fit]") {
  const Cluster cluster = fit_cluster({two_gpus()});
  CHECK(cluster.device.kind == DeviceKind::Gpu);
  CHECK(cluster.device.architecture == Architecture::Hopper);
  CHECK(cluster.device.name == "a GPU");
  CHECK(cluster.device.num_units == 132);
  CHECK(cluster.device.memory_gib == Approx(80));
  CHECK(cluster.device.runtime_base_mib == Approx(500));
  CHECK(cluster.device.peak_tflop_per_s.at("bf16") == Approx(400));
  CHECK(cluster.device.memory_gb_per_s == Approx(2000));
  CHECK(cluster.device.launch_us == Approx(3));
  CHECK(cluster.device.host_issue_us == Approx(2.5));
  // A stream of no bytes takes 1 us beyond its launch, in which 2 TB/s move 2 MB.
  CHECK(cluster.device.efficiency.half_stream_kib == Approx(2e6 / 1024).epsilon(1e-3));
  CHECK(cluster.devices_per_node == 2);
  CHECK(cluster.host_memory_gb_per_s == 0);
  CHECK_FALSE(cluster.communication.needs_host);
  REQUIRE(cluster.fabric.size() == 1);
  CHECK(cluster.fabric.front().name == "nvlink");
  CHECK(cluster.fabric.front().latency_us == Approx(5).epsilon(1e-3));
  CHECK(cluster.fabric.front().link_gb_per_s == Approx(150).epsilon(1e-3));
  CHECK(parse_cluster(to_json(cluster), "calibrated") == cluster);
}

TEST_CASE("GPUs without peer access communicate through host memory", "[sim][calibration_fit]") {
  program::CalibrationSamples job = two_gpus();
  job.gpus.back().peers.front().native_atomics = false;
  CHECK(fit_cluster({job}).fabric.front().name == "pcie");
  job.gpus.back().peers.front().access = false;
  CHECK(fit_cluster({job}).fabric.front().name == "host-memory");
  job.device_driven = false;
  job.cores = 2;
  CHECK(fit_cluster({job}).communication.needs_host);
}

TEST_CASE("What one cluster file cannot describe is refused", "[sim][calibration_fit]") {
  program::CalibrationSamples other_gpu = two_gpus();
  other_gpu.gpus.back().name = "another GPU";
  CHECK_THROWS_WITH(fit_cluster({other_gpu}), Catch::Contains("'a GPU' and 'another GPU'") &&
                                                  Catch::Contains("CUDA_VISIBLE_DEVICES"));
  CHECK_THROWS_WITH(fit_cluster({two_gpus(), two_cores()}), Catch::Contains("1 of 2 jobs"));
}

TEST_CASE("Samples of GPUs survive their file", "[sim][calibration_fit]") {
  const program::CalibrationSamples read =
      program::parse_samples(program::to_json(two_gpus()), "samples.json");
  CHECK(fit_cluster({read}) == fit_cluster({two_gpus()}));
  CHECK(read.gpus.front().peers == two_gpus().gpus.front().peers);
  CHECK(read.launch.queued_seconds == Approx(4e-6));
}

}  // namespace meshplan::sim
