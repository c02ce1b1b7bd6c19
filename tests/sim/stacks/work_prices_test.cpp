// Prices of a rank's work, worked by hand.
#include "stacks/work_prices.hpp"

#include <catch2/catch.hpp>

#include "prices/device_speeds.hpp"
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

/// Part of NVLink's rate that an all-to-all reaches on A100 nodes.
double all_to_all_inside() {
  return operator_constants().links_ampere * operator_constants().all_to_all;
}

/// Seconds of a dispatch without bytes: a collective's start, and a hop of each level.
double start_of_dispatch(const Priced& priced) {
  double us = operator_constants().simple_us;
  for (int level = 0; level <= *priced.placements.ep.level; ++level)
    us += priced.cluster.fabric[static_cast<std::size_t>(level)].latency_us;
  return us / 1e6;
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

// Two experts a token over eight ranks: 8 (1 - (7/8)^2) = 1.875 ranks on average, 7/8 of them
// others: 1.640625 GB of 1 GB of tokens leave over the link, at what nccl-tests reach of its rate.
TEST_CASE("A fused dispatch sends one copy to each rank that holds an expert", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.parallel.dp = 8;
  run.parallel.ep = 8;
  run.settings.balanced_routing = true;
  Priced priced(run);
  const double seconds =
      priced.pricer().price({{.kind = WorkKind::Dispatch, .count = 2, .bytes = 1e9}}).exposed;
  const double bytes =
      1.640625e9 / (link_capacity_bytes_per_s(priced.cluster, 0) * all_to_all_inside());
  CHECK(seconds == Approx(bytes + start_of_dispatch(priced)));
}

// DeepSeek-V3 (section 2.1.2): 8 of 256 experts, in 4 of 8 groups. Over 8 ranks a group each: 4
// copies, of which 7/8 leave. Over 64 ranks, 8 a node, a token passes the network for 4 nodes, and
// reaches in each one 8 (1 - (7/8)^2) ranks. Over 2 nodes, four groups each, the other one holds
// none of the four with 4/8 3/7 2/6 1/5 = 1/70.
TEST_CASE("Groups limit the places that a token is sent to", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.model.moe = models::MoeSpec{.num_experts = 256, .top_k = 8, .expert_ffn_size = 64};
  run.model.moe->router.num_groups = 8;
  run.model.moe->router.top_groups = 4;
  run.settings.balanced_routing = true;
  const auto seconds = [&](int ranks) {
    run.parallel.dp = run.parallel.ep = ranks;
    Priced priced(run);
    const double all =
        priced.pricer().price({{.kind = WorkKind::Dispatch, .count = 8, .bytes = 1e9}}).exposed;
    return all - start_of_dispatch(priced);
  };
  const Priced priced(run);
  const auto over = [&](int level, double inside) {
    return 1e9 / (link_capacity_bytes_per_s(priced.cluster, level) * inside);
  };
  CHECK(seconds(8) == Approx(4 * 7.0 / 8 * over(0, all_to_all_inside())));
  const double across = priced.constants.all_to_all;
  CHECK(seconds(64) ==
        Approx(std::max(4 * 7.0 / 8 * over(1, across),
                        32 * (1 - 49.0 / 64) * 63 / 64 * over(0, all_to_all_inside()))));
  CHECK(seconds(16) == Approx(2 * (1 - 1.0 / 70) / 2 * over(1, across)));
}

// 1 GB beside nothing is paid whole; with the switch it is left to what other micro-batches
// compute.
TEST_CASE("An overlapped exchange is not exposed in its own pass", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.parallel.dp = 8;
  run.parallel.ep = 8;
  const std::vector<WorkItem> items{{.kind = WorkKind::Dispatch, .count = 2, .bytes = 1e9}};
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
// 1 + 1/3 on average. 7/8 of them are other ranks.
TEST_CASE("Neighbouring experts lie in few ranks", "[sim][prices]") {
  TrainingRun run = small_gpt();
  run.parallel.dp = 8;
  run.parallel.ep = 8;
  run.settings.balanced_routing = true;
  const auto gigabytes = [&](int experts) {
    run.model.moe = models::MoeSpec{.num_experts = experts, .top_k = 2, .expert_ffn_size = 64};
    Priced priced(run);
    priced.profile.balances_over_neighbours = true;
    const double seconds =
        priced.pricer().price({{.kind = WorkKind::Dispatch, .count = 2, .bytes = 1e9}}).exposed;
    return (seconds - start_of_dispatch(priced)) * link_capacity_bytes_per_s(priced.cluster, 0) *
           all_to_all_inside() / 1e9;
  };
  CHECK(gigabytes(16) == Approx(7.0 / 8));
  CHECK(gigabytes(8) == Approx(14.0 / 8));
  CHECK(gigabytes(24) == Approx(4.0 / 3 * 7 / 8));
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
