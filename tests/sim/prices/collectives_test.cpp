// Collective times against formulas worked out by hand, on fabrics of round numbers.
#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "program/calibration/collective_table.hpp"
#include "sim/prices/measured_works.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;

/// Nodes of `per_node` GPUs: 1 us and 100 GB/s inside, 10 us and 10 GB/s a rank between.
Cluster two_levels(int nodes, int per_node) {
  Cluster cluster;
  cluster.num_nodes = nodes;
  cluster.devices_per_node = per_node;
  cluster.device.peak_tflop_per_s = {{"fp32", 1.0}};
  cluster.fabric = {
      {.name = "inside", .ranks_per_group = per_node, .latency_us = 1, .link_gb_per_s = 100},
      {.name = "between", .latency_us = 10, .link_gb_per_s = 10}};
  return cluster;
}

double ring(Collective collective, double bytes, const Cluster& cluster,
            const std::vector<int>& ranks) {
  return collective_seconds(collective, Algorithm::Ring, bytes, place(cluster, ranks), cluster,
                            cluster.communication.protocols.front());
}

}  // namespace

// 4 ranks, 1 GB, 100 GB/s: 2 * 3/4 * 1 GB / 100 GB/s = 15 ms, and 2 * 3 hops of 1 us.
TEST_CASE("A ring all-reduce takes 2 (n-1)/n m / B and 2 (n-1) hops", "[sim][collectives]") {
  const Cluster cluster = two_levels(1, 4);
  CHECK(ring(Collective::AllReduce, 1e9, cluster, {0, 1, 2, 3}) == Approx(0.015 + 6e-6));
  CHECK(ring(Collective::ReduceScatter, 1e9, cluster, {0, 1, 2, 3}) == Approx(0.0075 + 3e-6));
  CHECK(ring(Collective::AllGather, 0.25e9, cluster, {0, 1, 2, 3}) == Approx(0.0075 + 3e-6));
  CHECK(ring(Collective::Broadcast, 1e9, cluster, {0, 1, 2, 3}) == Approx(0.010 + 3e-6));
}

// 7 links of 10 GB/s from each of 8 ranks to the others: two ranks have one of them, four have
// three, and a message to one rank travels over one.
TEST_CASE("In a full mesh a group has the links between its members", "[sim][collectives]") {
  Cluster cluster = two_levels(2, 8);
  cluster.fabric.front().link_gb_per_s = 70;
  cluster.fabric.front().full_mesh = true;
  const auto seconds = [&](const std::vector<int>& ranks) {
    return ring(Collective::AllGather, 1e9, cluster, ranks);
  };
  CHECK(seconds({0, 1}) == Approx(1.0 / 10 + 1e-6));
  CHECK(seconds({0, 1, 2, 3}) == Approx(3.0 / 30 + 3e-6));
  CHECK(seconds({0, 1, 2, 3, 4, 5, 6, 7}) == Approx(7.0 / 70 + 7e-6));
  CHECK(seconds({0, 8}) == Approx(1.0 / 10 + 10e-6));  // the network's link, which is no mesh
  CHECK(price_transfer(1'000'000'000, place(cluster, {0, 1}), cluster).seconds ==
        Approx(1.0 / 10 + 1e-6));
  cluster.fabric.front().full_mesh = false;
  CHECK(seconds({0, 1}) == Approx(1.0 / 70 + 1e-6));
}

TEST_CASE("A group of one rank needs nothing", "[sim][collectives]") {
  const Cluster cluster = two_levels(1, 4);
  CHECK(price_collective(Collective::AllReduce, 1 << 20, place(cluster, {2}), cluster).seconds ==
        0);
}

// 2 nodes x 4: eight ranks bring four 10 GB/s links out of each node, 40 GB/s in all; one rank a
// node brings one. A ring over eight ranks hops 6 times inside and once between, twice over.
TEST_CASE("A group that crosses nodes is limited by the links its members bring",
          "[sim][collectives]") {
  const Cluster cluster = two_levels(2, 4);
  const double all = ring(Collective::AllReduce, 1e9, cluster, {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(all == Approx(2 * 7.0 / 8 / 40 + 2 * (6 * 1e-6 + 1 * 10e-6)));
  const double pair = ring(Collective::AllReduce, 1e9, cluster, {0, 4});
  CHECK(pair == Approx(2 * 1.0 / 2 / 10 + 2 * 10e-6));
}

// Ranks that share a link two by two halve what leaves the node; an oversubscribed level does, too.
TEST_CASE("Shared and oversubscribed links carry less", "[sim][collectives]") {
  Cluster cluster = two_levels(2, 4);
  cluster.fabric[1].latency_us = 0;
  const std::vector<int> everyone{0, 1, 2, 3, 4, 5, 6, 7};
  const double latency = 2 * 6e-6;
  cluster.fabric[1].ranks_per_link = 2;
  CHECK(ring(Collective::AllReduce, 1e9, cluster, everyone) == Approx(2 * 7.0 / 8 / 20 + latency));
  cluster.fabric[1].ranks_per_link = 1;
  cluster.fabric[1].oversubscription = 2;
  CHECK(ring(Collective::AllReduce, 1e9, cluster, everyone) == Approx(2 * 7.0 / 8 / 20 + latency));
}

// 64 nodes of one rank: a ring passes 2 * 63 hops, a tree 2 * log2(64) = 12. Small messages take
// the tree; large ones the ring, whose links carry 2 (n-1)/n m rather than 2 m.
TEST_CASE("Trees win for small messages, rings for large ones", "[sim][collectives]") {
  const Cluster cluster = two_levels(64, 1);
  std::vector<int> ranks;
  for (int rank = 0; rank < 64; ++rank) ranks.push_back(rank);
  const auto placement = place(cluster, ranks);
  const auto time = [&](Algorithm algorithm, double bytes) {
    return collective_seconds(Collective::AllReduce, algorithm, bytes, placement, cluster,
                              cluster.communication.protocols.front());
  };
  CHECK(time(Algorithm::Tree, 8) == Approx(12 * 10e-6).epsilon(1e-3));
  CHECK(time(Algorithm::Ring, 8) == Approx(126 * 10e-6).epsilon(1e-3));
  CHECK(time(Algorithm::Ring, 1e10) < time(Algorithm::Tree, 1e10));
  CHECK(price_collective(Collective::AllReduce, 8, placement, cluster).seconds ==
        Approx(time(Algorithm::Tree, 8)));
}

// 8 ranks on 2 nodes, 8 MB each: 7/8 of it leaves a rank, 4/8 leaves its node over its 10 GB/s.
TEST_CASE("An all-to-all is limited by what leaves the node", "[sim][collectives]") {
  Cluster cluster = two_levels(2, 4);
  for (auto& level : cluster.fabric) level.latency_us = 0;
  const double seconds = ring(Collective::AllToAll, 8e6, cluster, {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(seconds == Approx(4e6 / 10e9));
  // An all-to-all reaches one part of the links inside a node and another of those between nodes.
  cluster.communication.all_to_all = 0.5;
  cluster.communication.all_to_all_inner = 0.8;
  CHECK(ring(Collective::AllToAll, 8e6, cluster, {0, 1, 2, 3, 4, 5, 6, 7}) == Approx(4e6 / 5e9));
  CHECK(ring(Collective::AllToAll, 8e6, cluster, {0, 1, 2, 3}) == Approx(6e6 / 80e9));
}

TEST_CASE("A protocol trades latency for bandwidth and the cheaper one counts",
          "[sim][collectives]") {
  Cluster cluster = two_levels(1, 2);
  cluster.communication.protocols = {
      {.name = "low", .base_us = 1, .latency_factor = 1, .bandwidth_fraction = 0.25},
      {.name = "simple", .base_us = 10, .latency_factor = 5, .bandwidth_fraction = 1}};
  const auto placement = place(cluster, {0, 1});
  const auto seconds = [&](std::int64_t bytes) {
    return price_collective(Collective::AllReduce, bytes, placement, cluster).seconds;
  };
  CHECK(seconds(8) == Approx(1e-6 + 2e-6).epsilon(1e-3));         // 1 + 2 hops
  CHECK(seconds(1'000'000'000) == Approx(10e-6 + 10e-6 + 0.01));  // 1 GB / 100 GB/s
}

// Samples at 1 KiB and 4 KiB: half-way in the logarithm, 2 KiB takes their geometric mean. Above,
// the formula continues in proportion.
TEST_CASE("Measured collectives are interpolated in the logarithm of the size",
          "[sim][collectives]") {
  Cluster cluster = two_levels(1, 2);
  for (auto& level : cluster.fabric) level.latency_us = 0;
  const std::string op(program::name_of(program::CommOp::AllReduce));
  cluster.collectives = {{op, 2, 2, 1024, 1e-5}, {op, 2, 2, 4096, 4e-5}};
  const auto placement = place(cluster, {0, 1});
  const auto price = [&](std::int64_t bytes) {
    return price_collective(Collective::AllReduce, bytes, placement, cluster);
  };
  CHECK(price(1024).seconds == Approx(1e-5));
  CHECK(price(1024).source == PriceSource::Measured);
  CHECK(price(2048).seconds == Approx(2e-5));
  CHECK(price(2048).source == PriceSource::Interpolated);
  CHECK(price(8192).seconds == Approx(8e-5));
}

// Gradients come from memory and take 3e-5, activations from a cache, 1e-5. Where only caches were
// measured, both take that.
TEST_CASE("Groups that move gradients take what cold buffers take", "[sim][collectives]") {
  Cluster cluster = two_levels(1, 2);
  const std::string op(program::name_of(program::CommOp::AllReduce));
  cluster.collectives = {{op, 2, 2, 1024, 1e-5}};
  const auto seconds = [&](const program::ParallelConfig& parallel, program::Group group) {
    const auto placement = place(cluster, program::Mesh(parallel), group, 0);
    return price_collective(Collective::AllReduce, 1024, placement, cluster).seconds;
  };
  CHECK(seconds({.dp = 2}, program::Group::DpCp) == Approx(1e-5));
  cluster.collectives.push_back({op, 2, 2, 1024, 3e-5, true});
  CHECK(seconds({.dp = 2}, program::Group::DpCp) == Approx(3e-5));
  CHECK(seconds({.dp = 2}, program::Group::ZeroShards) == Approx(3e-5));
  CHECK(seconds({.tp = 2}, program::Group::Tp) == Approx(1e-5));
}

// Only groups of 2 were measured, at twice the formula's time: a group of 4 takes twice its
// formula.
TEST_CASE("An unmeasured group size scales the nearest measured one", "[sim][collectives]") {
  Cluster cluster = two_levels(1, 4);
  for (auto& level : cluster.fabric) level.latency_us = 0;
  const double two = ring(Collective::AllReduce, 1e6, cluster, {0, 1});
  const double four = ring(Collective::AllReduce, 1e6, cluster, {0, 1, 2, 3});
  cluster.collectives = {
      {std::string(program::name_of(program::CommOp::AllReduce)), 2, 4, 1'000'000, 2 * two}};
  CHECK(price_collective(Collective::AllReduce, 1'000'000, place(cluster, {0, 1, 2, 3}), cluster)
            .seconds == Approx(2 * four));
}

TEST_CASE("A transfer takes one hop and its bytes", "[sim][collectives]") {
  const Cluster cluster = two_levels(2, 4);
  CHECK(price_transfer(1'000'000, place(cluster, {0, 1}), cluster).seconds == Approx(1e-6 + 1e-5));
  CHECK(price_transfer(1'000'000, place(cluster, {0, 4}), cluster).seconds == Approx(1e-5 + 1e-4));
}

namespace {

std::vector<int> first_ranks(int count, int stride = 1) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(i * stride);
  return ranks;
}

double nccl(Collective collective, Algorithm algorithm, double bytes, const Cluster& cluster,
            const std::vector<int>& ranks) {
  return collective_seconds(collective, algorithm, bytes, place(cluster, ranks), cluster, {});
}

}  // namespace

// A rank sends all m bytes to the switch and 1/n of the sums back to it, at 0.85 of 100 GB/s, after
// 23 us.
TEST_CASE("NVLS sends every byte once and the n-th part twice", "[sim][collectives]") {
  Cluster cluster = two_levels(1, 8);
  cluster.device.architecture = Architecture::Hopper;
  cluster.communication.offers = {FabricOffer::Nvls};
  CHECK(nccl(Collective::AllReduce, Algorithm::Nvls, 1e9, cluster, first_ranks(8)) ==
        Approx(23e-6 + 1.125 * 0.01 / 0.85));
  CHECK(nccl(Collective::AllReduce, Algorithm::Nvls, 1e9, cluster, first_ranks(4)) ==
        Approx(23e-6 + 1.25 * 0.01 / 0.85));
  cluster.device.architecture = Architecture::Blackwell;
  CHECK(nccl(Collective::AllReduce, Algorithm::Nvls, 1e9, cluster, first_ranks(8)) ==
        Approx(23e-6 + 1.125 * 0.01 / 0.74));
}

// nccl-tests of 512 MiB on H100 (ai-dynamo/aiconfigurator's tables, NCCL 2.29): 2.111 ms over 8
// GPUs and 2.300 ms over 4, where switches sum. Over two, where rings are faster, 1.734 ms of bytes
// and 1.686 ms of halves, which are priced alike.
TEST_CASE("An all-reduce on H100 is as fast as nccl-tests measured it", "[sim][collectives]") {
  const Cluster cluster = load_cluster_preset("dgx-h100");
  const std::pair<int, double> measured[] = {{8, 2.111e-3}, {4, 2.300e-3}, {2, 1.734e-3}};
  for (const auto& [n, seconds] : measured)
    CHECK(
        price_collective(Collective::AllReduce, 512 << 20, place(cluster, first_ranks(n)), cluster)
            .seconds == Approx(seconds).epsilon(0.03));
}

// Ampere's switches do not sum, nor do those of a cluster that does not offer it; LL is faster for
// few bytes.
TEST_CASE("NVLS is taken where switches have it and many bytes are summed", "[sim][collectives]") {
  Cluster h100 = without_measured_shapes(load_cluster_preset("dgx-h100"));
  const auto seconds = [](const Cluster& cluster, Collective collective, std::int64_t bytes) {
    return price_collective(collective, bytes, place(cluster, first_ranks(8)), cluster).seconds;
  };
  Cluster without = h100;
  without.communication.offers.clear();
  const std::int64_t small = 1 << 14, large = 1 << 28;
  CHECK(seconds(h100, Collective::AllReduce, large) <
        0.8 * seconds(without, Collective::AllReduce, large));
  CHECK(seconds(h100, Collective::AllReduce, small) ==
        seconds(without, Collective::AllReduce, small));
  CHECK(seconds(h100, Collective::AllGather, large) ==
        seconds(without, Collective::AllGather, large));
  Cluster a100 = without_measured_shapes(load_cluster_preset("dgx-a100"));
  const double rings = seconds(a100, Collective::AllReduce, large);
  a100.communication.offers.push_back(FabricOffer::Nvls);
  CHECK(seconds(a100, Collective::AllReduce, large) == rings);
}

// 1 GB on 2 and 4 nodes of 4: 40 GB/s leave a node. Between two nodes each sends its sum once,
// between four an inner node of the tree twice. Inside: 1.25 / (0.85 * 100 GB/s), faster.
TEST_CASE("An NVLS tree crosses the network once or twice", "[sim][collectives]") {
  Cluster cluster = two_levels(4, 4);
  cluster.device.architecture = Architecture::Hopper;
  cluster.communication.offers = {FabricOffer::Nvls};
  CHECK(nccl(Collective::AllReduce, Algorithm::NvlsTree, 1e9, cluster, first_ranks(8)) ==
        Approx(23e-6 + 2 * 14e-6 + 1.0 / 40));
  CHECK(nccl(Collective::AllReduce, Algorithm::NvlsTree, 1e9, cluster, first_ranks(16)) ==
        Approx(23e-6 + 4 * 14e-6 + 2.0 / 40));
}

// In a network that sums, every byte leaves a node once: 1 GB / 40 GB/s, after 31 us and inside
// twice 3.7 us and three times 0.4.
TEST_CASE("CollNet sends every byte to the network's switches once", "[sim][collectives]") {
  Cluster cluster = two_levels(4, 4);
  cluster.communication.offers = {FabricOffer::CollNet};
  CHECK(nccl(Collective::AllReduce, Algorithm::CollNet, 1e9, cluster, first_ranks(16)) ==
        Approx(31e-6 + 2 * (3.7e-6 + 3 * 0.4e-6) + 1.0 / 40));
  CHECK(nccl(Collective::AllReduce, Algorithm::CollNet, 1e9, cluster, first_ranks(4, 4)) ==
        Approx(31e-6 + 1.0 / 10));
}

// 16 ranks, one a node: 8 us, 4 steps of 4 us and 2.8 us a rank; (n - 1) / n of the bytes at 0.75
// of 10 GB/s.
TEST_CASE("PAT takes logarithmically many steps where a node holds one rank",
          "[sim][collectives]") {
  Cluster cluster = two_levels(16, 4);
  cluster.communication.offers = {FabricOffer::Pat};
  const auto ranks = first_ranks(16, 4);
  const double latency = 8e-6 + 4 * 4e-6 + 16 * 2.8e-6;
  CHECK(nccl(Collective::ReduceScatter, Algorithm::Pat, 1e6, cluster, ranks) ==
        Approx(latency + 15.0 / 16 * 1e6 / 7.5e9));
  CHECK(nccl(Collective::AllGather, Algorithm::Pat, 1e6, cluster, ranks) ==
        Approx(latency + 15.0 * 1e6 / 7.5e9));
  const auto seconds = [&](std::int64_t bytes, const std::vector<int>& members) {
    return price_collective(Collective::ReduceScatter, bytes, place(cluster, members), cluster)
        .seconds;
  };
  CHECK(seconds(1024, ranks) ==  // rings: 15 hops of 10 us
        Approx(nccl(Collective::ReduceScatter, Algorithm::Pat, 1024, cluster, ranks)));
  CHECK(seconds(1'000'000'000, ranks) ==
        Approx(ring(Collective::ReduceScatter, 1e9, cluster, ranks)));
  CHECK(seconds(1024, first_ranks(8)) ==  // two nodes of four
        Approx(ring(Collective::ReduceScatter, 1024, cluster, first_ranks(8))));
}

}  // namespace meshplan::sim
