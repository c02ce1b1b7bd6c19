// The kernels that exchange experts' rows, worked by hand with round constants.
#include "prices/expert_exchange.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "prices/device_speeds.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

/// Constants with which one part of an exchange counts and no other.
OperatorConstants endless() {
  OperatorConstants c;
  c.kernel_us = c.deepep_us = c.deepep_notify_us = 0;
  c.deepep_row_us = c.deepep_row_kb_us = c.deepep_token_kb_us = 0;
  c.deepep_relay_kb_us = c.deepep_sum_kb_us = 0;
  c.deepep_links = c.exchange_wire = 1e6;
  return c;
}

/// H100 nodes: 400 GB/s inside, 40 between.
struct Nodes {
  Cluster cluster;
  GroupPlacement group;

  explicit Nodes(int count)
      : cluster(with_ranks(without_measured_shapes(load_data_sheet("dgx-h100")), 8 * count)) {
    for (FabricLevel& level : cluster.fabric) {
      level.reached = level.oversubscription = 1;
      level.link_gb_per_s = 40;
    }
    cluster.fabric.front().link_gb_per_s = 400;
    std::vector<int> ranks;
    for (int rank = 0; rank < 8 * count; ++rank) ranks.push_back(rank);
    group = place(cluster, ranks);
  }
  double seconds(const ExchangeWork& work, const OperatorConstants& constants) const {
    return exchange_seconds(work, group, cluster, constants);
  }
};

constexpr ExchangeWork kTwoRanks{.tokens = 1000, .bytes = 4000, .token_ranks = 2, .sms = 10};

}  // namespace

// A token: two rows of 0.1 us and of 4,000 bytes at 0.02 us a thousand, and its own 4,000 at 0.05:
// 0.56 us of an SM; of ten SMs 1,000 take 56 us, after 7 us.
TEST_CASE("DeepEP's SMs copy rows and read tokens", "[sim][experts]") {
  OperatorConstants c = endless();
  c.deepep_us = 7;
  c.deepep_row_us = 0.1;
  c.deepep_row_kb_us = 0.02;
  c.deepep_token_kb_us = 0.05;
  CHECK(Nodes(1).seconds(kTwoRanks, c) == Approx(63e-6));
}

// Of 1,000 x 2 rows of 4,000 bytes 7/8 leave a rank, at half of 400 GB/s: 35 us.
TEST_CASE("Seven of eight ranks' rows leave over the node's links", "[sim][experts]") {
  OperatorConstants c = endless();
  c.deepep_links = 0.5;
  CHECK(Nodes(1).seconds(kTwoRanks, c) == Approx(35e-6));
  ExchangeWork copies = kTwoRanks;  // HybridEP's reach what rings do, of two rows 8 MB: 17.5 us
  copies.kernels = ExchangeKernels::HybridEp;
  copies.sms = 100;
  CHECK(Nodes(1).seconds(copies, c) == Approx(17.5e-6));
  copies.sms = 10;  // 10 SMs of 40 GB/s: 20 us; back 36 GB/s
  CHECK(Nodes(1).seconds(copies, c) == Approx(20e-6));
  copies.part = ExchangePart::Combine;
  CHECK(Nodes(1).seconds(copies, c) == Approx(8e6 / 360e9));
}

// 2 of 4 nodes a token, of which 3/4 are others: 1,000 x 2 x 4,000 x 3/4 bytes at 0.75 of 40 GB/s:
// 200 us, after counts of 50 us. A rank relays 2 x 4,000 bytes a token at 0.1 us of an SM a
// thousand, or adds them up at 0.3: of ten SMs 80 and 240 us.
TEST_CASE("Rows cross the network once a node, and are relayed inside", "[sim][experts]") {
  OperatorConstants c = endless();
  c.deepep_notify_us = 50;
  c.exchange_wire = 0.75;
  ExchangeWork work = kTwoRanks;
  work.token_nodes = 2;
  const Nodes four(4);
  CHECK(four.seconds(work, c) == Approx(250e-6));
  c.exchange_wire = 1e6;
  c.deepep_relay_kb_us = 0.1;
  c.deepep_sum_kb_us = 0.3;
  CHECK(four.seconds(work, c) == Approx(130e-6));
  work.part = ExchangePart::Combine;
  CHECK(four.seconds(work, c) == Approx(290e-6));
}

// deepep.csv, h100_sxm: 8,192 tokens of 5,120 elements to one of 16 experts by 16 SMs, which the
// preset's thinned table leaves out: 368.11 us out, 851.57 us back.
TEST_CASE("Timed exchanges inside a node correct the formula", "[sim][experts]") {
  const Cluster timed = with_operator_speeds(load_data_sheet("dgx-h100"), operator_constants());
  const GroupPlacement node = place(timed, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto check = [&](const ExchangeWork& work, double measured) {
    const auto error = [&](const Cluster& cluster) {
      return std::abs(exchange_seconds(work, node, cluster) / measured - 1);
    };
    CHECK(error(timed) < 0.1);
    CHECK(error(timed) < error(without_measured_shapes(timed)));
  };
  ExchangeWork work{
      .tokens = 8192, .bytes = 5120 * (1 + 4.0 / 128), .token_ranks = 1, .ranks = 8, .sms = 16};
  check(work, 368.11e-6);
  work.part = ExchangePart::Combine;
  work.bytes = 2 * 5120;
  check(work, 851.57e-6);
}

TEST_CASE("A group of one rank exchanges nothing", "[sim][experts]") {
  Nodes one(1);
  one.group = place(one.cluster, {0});
  CHECK(one.seconds(kTwoRanks, endless()) == 0);
}

}  // namespace meshplan::sim
