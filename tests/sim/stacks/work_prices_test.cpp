// Prices of a rank's work, worked by hand.
#include "stacks/work_prices.hpp"

#include <catch2/catch.hpp>

#include "prices/device_speeds.hpp"
#include "prices/expert_exchange.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/run_cases.hpp"
#include "sim/stacks/work_sums.hpp"

namespace meshplan::sim {
namespace {

/// A run with a pricer of its own.
struct Priced {
  TrainingRun run;
  ExecutionProfile profile;
  Constants constants;
  Cluster cluster;
  RunPlacements placements;

  explicit Priced(TrainingRun given)
      : run(std::move(given)),
        profile(load_execution_profile(run.profile)),
        cluster(with_ranks(load_data_sheet(run.cluster), run.parallel.world_size())),
        placements(place_groups(run, cluster)) {}
  WorkPricer pricer() const { return {run, profile, cluster, placements, constants}; }
};

constexpr double kExchangedTokens = 65536, kExchangedRow = 16384;  // a GiB of tokens

/// Each token to `experts` experts.
WorkItem dispatch_to(double experts) {
  return {.kind = WorkKind::Dispatch,
          .count = experts,
          .m = kExchangedTokens,
          .bytes = kExchangedTokens * kExchangedRow};
}

/// Seconds of the kernel itself, for a token that goes to so many ranks and nodes.
double exchange_to(double ranks, double nodes, const Priced& priced) {
  const WorkPricer pricer = priced.pricer();
  return exchange_seconds({.tokens = kExchangedTokens,
                           .bytes = kExchangedRow,
                           .token_ranks = ranks,
                           .token_nodes = nodes},
                          priced.placements.ep, pricer.cluster());
}

}  // namespace

// 500 of 700 W: (5 / 7)^0.5 = 0.84515 of the clock at which operators were measured. In a step of
// factor 1.25 products take 1.25 times as long.
TEST_CASE("A lower power limit lowers the clock by its root", "[sim][prices]") {
  Constants constants;
  constants.step_hopper = 1.25;
  Cluster sheet = load_data_sheet("dgx-h100");
  const double alone = operator_constants().product_hopper;
  const auto fraction = [&] {
    return with_fitted_speeds(sheet, constants, FlashGeneration::Three).device.efficiency.gemm;
  };
  CHECK(fraction() == Approx(alone / 1.25));
  sheet.device.power_w = 500;
  CHECK(fraction() == Approx(alone / 1.25 * 0.84515).epsilon(1e-4));
}

// H20: 148 TFLOP/s for 500 W are 3.4 W each, five times an H100's 0.71: no power limit.
TEST_CASE("Power beyond what the peak needs ends at the most that products reach",
          "[sim][prices]") {
  Cluster sheet = load_data_sheet("dgx-h100");
  sheet.device.power_w = 500;
  sheet.device.peak_tflop_per_s["bf16"] = 148;
  CHECK(with_operator_speeds(sheet, operator_constants()).device.efficiency.gemm == 0.93);
}

TEST_CASE("Speeds that are filled in twice are those filled in once", "[sim][prices]") {
  const Cluster once =
      with_fitted_speeds(load_data_sheet("dgx-b200"), Constants{}, FlashGeneration::Two);
  CHECK(with_fitted_speeds(once, Constants{}, FlashGeneration::Two) == once);
}

// 1e12 pairs of heads of 128 + 128 on an H100 at 0.6 of 989.4 TFLOP/s: forward two products,
// 512e12 / 593.64e12 = 0.86248 s; backward five at 0.75 of the rate, 1,280e12 / 445.23e12 = 2.87492
// s. Exponentials in either: 989.4e12 / 4,096 x 16 = 3.86484e12 a second, 0.25874 s. 264 blocks run
// on 132 units in two waves, each with a start and end of 5 us.
TEST_CASE("Attention's backward takes 2.5 times the products at 0.75 of the rate",
          "[sim][prices]") {
  Cluster cluster = load_data_sheet("dgx-h100");
  cluster.device.efficiency.attention_forward = 0.6;
  cluster.device.efficiency.attention_backward = 0.45;
  cluster.device.efficiency.attention_tile = 128;
  cluster.device.efficiency.exponentials_per_ps = 3.86484;
  AttentionShape shape{.pairs = 1e12, .head_sizes = 256, .blocks = 264};
  CHECK(attention_seconds(shape, 989.4e12, cluster) == Approx(0.86248 + 0.25874).epsilon(1e-4));
  cluster.device.efficiency.attention_block_us = 5e4;
  CHECK(attention_seconds(shape, 989.4e12, cluster) ==
        Approx(0.86248 + 0.25874 + 0.1).epsilon(1e-4));
  cluster.device.efficiency.attention_block_us = 0;
  shape.backward = true;
  CHECK(attention_seconds(shape, 989.4e12, cluster) == Approx(2.87492 + 0.25874).epsilon(1e-4));
}

// 4,096 tokens: half of them and half a tile on average; a window of 1,024 holds 1,024 less an
// eighth, 896, and its edges.
TEST_CASE("A query computes its tile and its window's edges", "[sim][prices]") {
  const OperatorConstants constants{.window_keys = 200};
  CHECK(causal_keys(4096, 0, constants) == 2048 + 64);
  CHECK(causal_keys(4096, 1024, constants) == 896 + 200);
  CHECK(causal_keys(512, 511, constants) == 256 + 64);  // never more than without
}

// Three kernels besides their bytes, as operators show them, issued in 3 x 20 us.
TEST_CASE("Kernels take time to start and to issue", "[sim][prices]") {
  Priced priced(small_gpt());
  priced.profile.issue_fraction = 1;
  priced.constants.host_issue_us = 20;
  const double starts = 3e-6 * operator_constants().kernel_us;
  const PhaseTime time =
      priced.pricer().price({{.kind = WorkKind::Stream, .bytes = 1e9, .kernels = 3}});
  CHECK(time.starts == Approx(starts));
  CHECK(time.compute == Approx(priced.pricer().stream(1e9) + starts));
  CHECK(time.host == Approx(60e-6));
}

// A collective of c seconds beside a product of p: at least 0.25 c is paid, and what sticks out.
TEST_CASE("Overlapped tensor parallelism pays a part, or what sticks out", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.parallel.tp = 8;
  run.settings.overlap_tp = true;
  Priced priced(run);
  priced.profile.tp_overlap = TpOverlap::UserBuffers;
  priced.constants.tp_exposed = 0.25;
  const WorkPricer pricer = priced.pricer();
  const WorkItem sum{.kind = WorkKind::Collective, .bytes = 1e8, .beside_product = true};
  const double c = pricer.price({sum}).exposed;  // nothing beside it
  CHECK(c > 1e-4);
  const auto exposed_beside = [&](double m) {
    return pricer.price({{.kind = WorkKind::Product, .m = m, .n = 8192, .k = 8192}, sum});
  };
  const PhaseTime large = exposed_beside(65536);
  REQUIRE(large.products > c);
  CHECK(large.exposed == Approx(0.25 * c));
  const PhaseTime small = exposed_beside(128);
  REQUIRE(small.products < 0.75 * c);
  CHECK(small.exposed == Approx(c - small.products));
}

// Two of eight experts a token over eight ranks: two ranks. A stated imbalance is that of the
// busiest rank's rows.
TEST_CASE("A fused dispatch sends one copy to each rank that holds an expert", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.parallel.dp = 8;
  run.parallel.ep = 8;
  run.model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 64};
  run.settings.balanced_routing = true;
  const Priced priced(run);
  const double even = priced.pricer().price({dispatch_to(2)}).exposed;
  CHECK(even == Approx(exchange_to(2, 1, priced)));
  WorkItem back = dispatch_to(2);
  back.combines = true;
  CHECK(priced.pricer().price({back}).exposed == Approx(even));  // inside a node as much

  run.settings.balanced_routing = {};
  run.expert_imbalance = 1.5;
  const double start = exchange_seconds({}, priced.placements.ep, priced.pricer().cluster());
  CHECK(Priced(run).pricer().price({dispatch_to(2)}).exposed - start ==
        Approx(1.5 * (even - start)));
}

// DeepSeek-V3 (section 2.1.2): 8 of 256 experts, in 4 of 8 groups. Over 8 ranks a group each, and
// of 128 eligible experts 32 a rank: 4 (1 - C(96, 8) / C(128, 8)) = 3.62901 ranks. Over 64 ranks, 8
// a node, as many nodes, and 4 of 128 experts a rank: 32 (1 - C(124, 8) / C(128, 8)) = 7.35937.
TEST_CASE("Groups limit the places that a token is sent to", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.model.moe = models::MoeSpec{.num_experts = 256, .top_k = 8, .expert_ffn_size = 64};
  run.model.moe->router.num_groups = 8;
  run.model.moe->router.top_groups = 4;
  run.settings.balanced_routing = true;
  const auto check = [&](int ranks, double of_token, double nodes) {
    run.parallel.dp = run.parallel.ep = ranks;
    const Priced priced(run);
    CHECK(priced.pricer().price({dispatch_to(8)}).exposed ==
          Approx(exchange_to(of_token, nodes, priced)).epsilon(1e-5));
  };
  check(8, 3.62901, 1);
  check(64, 7.35937, 3.62901);
}

// 1 GB beside nothing is paid whole; with the switch it is left to what other micro-batches
// compute.
TEST_CASE("An overlapped exchange is not exposed in its own pass", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.parallel.dp = 8;
  run.parallel.ep = 8;
  const std::vector<WorkItem> items{dispatch_to(2)};
  const PhaseTime whole = Priced(run).pricer().price(items);
  run.settings.overlap_ep = true;
  const Priced priced(run);
  const PhaseTime beside = priced.pricer().price(items);
  CHECK(beside.exposed == 0);
  CHECK(beside.exchange == Approx(whole.experts));
}

// Four ranks: a quarter of attention hides each of three steps, or what is gathered at once.
TEST_CASE("Attention hides a step of a ring, or a gather, by its share", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.parallel = {.cp = 4};
  const Priced priced(run);
  WorkItem ring{.kind = WorkKind::Ring, .count = 3, .bytes = 1e9, .group = program::Group::Cp};
  const WorkItem flash{.kind = WorkKind::Flash, .pairs = 1e9, .head_sizes = 128, .blocks = 1e4};
  const PhaseTime steps = priced.pricer().price({flash, ring});
  CHECK(steps.hidden == Approx(3 * steps.attention / 4));
  ring.at_once = true;
  const PhaseTime gather = priced.pricer().price({flash, ring});
  CHECK(gather.hidden == Approx(gather.attention / 4));
  CHECK(gather.hidden + gather.exposed == Approx(steps.hidden + steps.exposed));
}

// Two neighbours: of 16 experts over eight ranks in one rank, of 8 in two; of 24, three a rank, in
// 1 + 1/3 on average.
TEST_CASE("Neighbouring experts lie in few ranks", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.parallel.dp = 8;
  run.parallel.ep = 8;
  run.settings.balanced_routing = true;
  const auto check = [&](int experts, double ranks) {
    run.model.moe = models::MoeSpec{.num_experts = experts, .top_k = 2, .expert_ffn_size = 64};
    Priced priced(run);
    priced.profile.balances_over_neighbours = true;
    CHECK(priced.pricer().price({dispatch_to(2)}).exposed == Approx(exchange_to(ranks, 1, priced)));
  };
  check(16, 1);
  check(8, 2);
  check(24, 4.0 / 3);
}

// 30 launches of 20 us after the wait take longer than their kernels, however long the stream
// before it kept the device busy.
TEST_CASE("A host that waits for the device cannot run ahead", "[sim][prices]") {
  Priced priced(small_gpt());
  priced.profile.issue_fraction = 1;
  priced.constants.host_issue_us = 20;
  const WorkPricer pricer = priced.pricer();
  WorkItem before{.kind = WorkKind::Stream, .bytes = 4e9, .kernels = 2};
  WorkItem after{.kind = WorkKind::Stream, .bytes = 1, .kernels = 30};
  const auto idle = [&] {
    const PhaseTime time = pricer.price({before, after});
    return std::max(0.0, time.host - time.gpu());
  };
  CHECK(pricer.price({before}).gpu() > 30 * 20e-6);
  CHECK(idle() == 0);
  after.awaited = true;
  CHECK(idle() == Approx(30 * 20e-6 - pricer.price({after}).compute));
}

// 2 ranks hold 16 x 1,024 x 16,384 / 2 elements each: 268 MB pass what collectives reach of 240
// GB/s once, and as many are copied.
TEST_CASE("A stage gathers the parts that tp ranks have sent", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.parallel = {.tp = 2, .pp = 2};
  run.micro_batch_size = 16;
  run.model.hidden_size = 16384;
  run.profile = "megatron-2022";
  const OperatorConstants& measured = operator_constants();
  CHECK(Priced(run).pricer().gather_received() ==
        Approx(268.4e6 * (1 + measured.own_part) / (240e9 * measured.links_ampere)).epsilon(0.02));
  Priced whole(run);
  whole.profile.replicated_activation_sends = true;
  CHECK(whole.pricer().gather_received() == 0);
  run.parallel.sp = true;  // what is sent is what the next stage keeps
  CHECK(Priced(run).pricer().gather_received() == 0);
}

// Inputs of a GPT layer's four products hold 1 + 1 + 1 + 4 = 7 T D elements, their outputs'
// gradients 3 + 1 + 4 + 1 = 9 T D: at 4 and 6 bytes, 28 and 54 T D bytes more than in 16 bit. The
// two sums, which only 16-bit products make, pass over 3 + 2 T D elements of 2 bytes: 10 T D.
TEST_CASE("FP8 casts pass inputs and output gradients once more", "[sim][prices]") {
  TrainingRun run = small_gpt();
  const models::ModelGraph graph = models::build_graph(run.model);
  ExecutionProfile profile = load_execution_profile("meshplan");
  profile.fp8_cast = {4, 6, 1, 1};
  const LayerWork half = layer_work(graph.kinds.front(), run, profile, false);
  run.precision = RunPrecision::Fp8;
  const LayerWork low = layer_work(graph.kinds.front(), run, profile, false);
  const double elements = 2 * 1024 * 1024.0;
  CHECK(stream_bytes(low.forward) - stream_bytes(half.forward) == Approx((28 + 10) * elements));
  CHECK(stream_bytes(low.backward) - stream_bytes(half.backward) == Approx(54 * elements));
}

}  // namespace meshplan::sim
