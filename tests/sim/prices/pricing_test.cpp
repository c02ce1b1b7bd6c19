#include "sim/prices/pricing.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "core/error.hpp"
#include "prices/operator_table.hpp"
#include "program/cost/cost.hpp"
#include "sim/handmade.hpp"
#include "sim/plans.hpp"

namespace meshplan::sim {
namespace {

/// 10 units of 1 TFLOP/s each, whole tiles of 100 x 100, nothing lost but to quantization.
Cluster round_numbers() {
  Cluster cluster;
  cluster.device.peak_tflop_per_s = {{"fp32", 10.0}};
  cluster.device.memory_gb_per_s = 100;
  cluster.device.num_units = 10;
  cluster.device.efficiency = {.gemm = 1,
                               .tile_m = 100,
                               .tile_n = 100,
                               .half_k = 0,
                               .attention_forward = 0.5,
                               .attention_backward = 0.25,
                               .memory = 0.5,
                               .half_stream_kib = 0};
  return cluster;
}

Price price_of_first(program::Program program, const Cluster& cluster) {
  return price_operation(program, program.instances.front(), cluster);
}

program::Program adding(int size) {
  HandMade made({});
  made.compute(program::Phase::Forward, size);
  return made.take();
}

}  // namespace

// 10 tiles on 10 units are one wave at the peak: 2 * 1000 * 100 * 500 / 10 TFLOP/s = 10 us. One row
// more starts an eleventh tile: a second wave, 20 us; half tiles, 21 in 3 waves of half the work at
// 0.85 of the rate: 3 * 5 / 0.85 = 17.6 us; or quarters, 42 in 5 waves at 0.85 * 0.85: 17.3 us,
// which the library takes.
TEST_CASE("A matrix product pays for whole tiles and whole waves", "[sim][pricing]") {
  const Cluster cluster = round_numbers();
  CHECK(gemm_seconds(1000, 100, 500, DType::F32, cluster) == Approx(10e-6));
  CHECK(gemm_seconds(1001, 100, 500, DType::F32, cluster) == Approx(5 * 2.5e-6 / (0.85 * 0.85)));
}

// half_k = 500: at K = 500 the inner loop runs at half its rate, at 1500 at three quarters.
TEST_CASE("A short inner dimension lowers the rate", "[sim][pricing]") {
  Cluster cluster = round_numbers();
  cluster.device.efficiency.half_k = 500;
  CHECK(gemm_seconds(1000, 100, 500, DType::F32, cluster) == Approx(20e-6));
  cluster.device.num_units = 1;  // so that K is not split
  CHECK(gemm_seconds(100, 100, 1500, DType::F32, cluster) ==
        Approx(2 * 100 * 100 * 1500 / 1e13 / 0.75));
}

// One tile and K = 5120 on 10 units: K is cut into 10 parts of 512, so all units work.
TEST_CASE("A product with few tiles splits its inner dimension", "[sim][pricing]") {
  CHECK(gemm_seconds(100, 100, 5120, DType::F32, round_numbers()) ==
        Approx(2 * 100 * 100 * 512 / 1e12));
}

// 128 queries of a head see 8,256 keys; on a unit of 1e6 a second a tanh takes 2 more of each pair.
TEST_CASE("A soft cap's tanh runs on the unit of exponentials", "[sim][pricing]") {
  Cluster cluster = round_numbers();
  cluster.device.memory_gb_per_s = 1e6;
  cluster.device.efficiency.exponentials_per_ps = 1e-6;
  const auto seconds = [&](std::optional<double> cap) {
    program::Plan plan = tiny_plan({}, 1);
    plan.model.attention_softcap = cap;
    const program::Program program = program::lower(plan, 0);
    for (const program::OperationInstance& instance : program.instances)
      if (program::operation_of(program, instance).name == "attention")
        return price_operation(program, instance, cluster).seconds;
    return 0.0;
  };
  const double pairs = models::load_preset("tiny-llama").num_heads * 128.0 * 129 / 2;
  CHECK(seconds(50.0) - seconds(std::nullopt) == Approx(2 * pairs / 1e6));
}

TEST_CASE("An operation without arithmetic is priced by its bytes", "[sim][pricing]") {
  const Price price = price_of_first(adding(1'000'000), round_numbers());
  CHECK(price.seconds == Approx(4e6 / 50e9));  // fp32, one operand, half of 100 GB/s
  CHECK(price.source == PriceSource::Formula);
}

TEST_CASE("The launch cost is paid once per operation", "[sim][pricing]") {
  Cluster cluster = round_numbers();
  cluster.device.launch_us = 7;
  CHECK(price_of_first(adding(1'000'000), cluster).seconds == Approx(4e6 / 50e9 + 7e-6));
}

TEST_CASE("A measured signature wins over the formula", "[sim][pricing]") {
  Cluster cluster = round_numbers();
  cluster.operators = {taking("forward", 1000, 0.125)};
  const Price price = price_of_first(adding(1000), cluster);
  CHECK(price.seconds == 0.125);
  CHECK(price.source == PriceSource::Measured);
}

// Measured at 1,000 elements: three times the formula. At 2,000 and with nothing nearer, the
// formula is taken three times, too. An operation of another kind is left alone.
TEST_CASE("Between samples the formula is corrected by its neighbours", "[sim][pricing]") {
  Cluster cluster = round_numbers();
  const double formula = 4000 / 50e9;
  cluster.operators = {taking("forward", 1000, 3 * formula)};
  cluster.operators.front().bytes = 4000;
  const Price price = price_of_first(adding(2000), cluster);
  CHECK(price.seconds == Approx(3 * 8000 / 50e9));
  CHECK(price.source == PriceSource::Interpolated);
  HandMade other({});
  other.compute(program::Phase::InputGrad, 2000);
  CHECK(price_of_first(other.take(), cluster).source == PriceSource::Formula);
}

// 2 cores share 20 GB/s: copies that slow each other by 1.5 each ask for 1.5 * 20 / 2 = 15 GB/s.
TEST_CASE("A measured slowdown becomes a demand for memory bandwidth", "[sim][pricing]") {
  Cluster cluster = cpu_host(2, 2);
  cluster.host_memory_gb_per_s = 20;
  cluster.operators = {taking("forward", 8, 1.0, 1.5)};
  CHECK(price_of_first(adding(8), cluster).memory_bytes_per_s == Approx(15e9));
}

TEST_CASE("Every operation of a lowered plan has a price", "[sim][pricing]") {
  const auto plan = tiny_plan({.tp = 2, .pp = 2, .dp = 2}, 2);
  const Cluster cluster = with_ranks(load_data_sheet("dgx-h100"), 8);
  const program::Mesh mesh(plan.parallel, plan.rank_order);
  const auto programs = program::lower_all(plan);
  for (int stage = 0; stage < 2; ++stage) {
    const auto& program = programs[static_cast<std::size_t>(stage)];
    const auto prices = price_program(program, mesh.rank_of({.pp = stage}), mesh, cluster);
    REQUIRE(prices.of_instance.size() == program.instances.size());
    for (const Price& price : prices.distinct) CHECK(price.seconds > 0);
  }
}

// A large bf16 product runs at the efficiency of the data sheet preset: 8192^3 on an H100 in
// 2 * 8192^3 / (0.8 * 989.4 TFLOP/s) = 1.389 ms, up to waves (64 * 64 tiles / 132 units = 31.03 ->
// 32 waves, 3 %) and the inner loop's start (64 / 8192, 1 %).
TEST_CASE("A large product reaches the stated part of the peak", "[sim][pricing]") {
  const Cluster h100 = load_data_sheet("one-h100");
  CHECK(gemm_seconds(8192, 8192, 8192, DType::BF16, h100) == Approx(1.389e-3 * 1.04).epsilon(0.01));
}

// What a signature says of an operation's shape decides its price: one that is read wrongly would
// be priced by its bytes.
TEST_CASE("No operation of any model computes faster than the peak", "[sim][pricing]") {
  const Cluster cluster = load_cluster_preset("one-h100");
  const double peak = peak_flop_per_s(cluster, DType::BF16);
  for (const char* name : {"deepseek-v3", "gpt-oss-20b", "gemma2-2b", "llama3-8b"}) {
    program::Plan plan = tiny_plan({}, 1);
    plan.model = models::load_preset(name);
    plan.model.num_layers = 4;
    plan.model.mtp_layers = 0;
    plan.workload.precision = DType::BF16;
    plan.workload.seq_len = 4096;
    for (const bool packed : {false, true}) {
      plan.workload.documents.packed = packed;
      plan.workload.documents.end_of_document = 0;
      const program::Program program = program::lower(plan, 0);
      const ProgramPrices prices = price_program(program, 0, program::Mesh(plan.parallel), cluster);
      double attention = 0;  // part of the peak
      for (std::size_t i = 0; i < program.instances.size(); ++i) {
        const std::string signature = program::signature(program, program.instances[i]);
        const double least = program::operation_cost(program, program.instances[i]).flops / peak;
        INFO(name << ": " << signature);
        CHECK(prices.of(i).seconds >= least);
        if (signature.starts_with("attention.forward"))
          attention = std::max(attention, least / prices.of(i).seconds);
      }
      CHECK(attention > 0.1);
    }
  }
}

// Our kernels of grouped products move an SM's shared memory at 128 bytes a clock (docs/cuda.md).
// mma.sync, tiles of 64 x 64: 2 * 64^3 FLOP for 56 KiB, so 2^19 / 448 = 1,170 FLOP a clock: of an
// A100's 2,048 57 %, of a B200's 8,192 14 %. wgmma: 2^22 FLOP for 128 KiB are Hopper's 4,096.
TEST_CASE("Grouped products are no faster than what feeds our kernels", "[sim][pricing]") {
  const auto part_of_peak = [](const char* preset, double tokens, const char* phase) {
    const Cluster cluster = load_cluster_preset(preset);
    const double flops = 2 * tokens * 14336 * 4096;
    const std::string signature =
        fmt::format("grouped_linear.{} bf16 t={:.0f} experts=8 out=14336 in=4096", phase, tokens);
    const double seconds =
        OperatorTable(cluster).price(signature, flops, 0).seconds - cluster.device.launch_us / 1e6;
    return flops / seconds / peak_flop_per_s(cluster, DType::BF16);
  };
  for (const char* phase : {"forward", "input_grad"}) {
    CAPTURE(phase);
    CHECK(part_of_peak("dgx-a100", 16384, phase) == Approx(0.571).epsilon(1e-2));
    CHECK(part_of_peak("dgx-b200", 16384, phase) == Approx(0.143).epsilon(1e-2));
    CHECK(part_of_peak("dgx-h100", 16384, phase) < 0.7);
    CHECK(part_of_peak("dgx-h100", 16384, phase) > 0.5);
  }
  // Experts of 129 rows fill two tiles of 128 of which one is nearly empty.
  CHECK(part_of_peak("dgx-h100", 8 * 129, "forward") <= 129.0 / 256 * 1.001);
}

TEST_CASE("A peer outside the pipeline is a bug", "[sim][pricing]") {
  const program::Mesh mesh(program::ParallelConfig{.pp = 2});
  CHECK(peer_rank(mesh, 0, {.send = true, .stage_offset = 1}) == 1);
  CHECK_THROWS_AS(peer_rank(mesh, 1, {.send = true, .stage_offset = 1}), InvariantError);
}

}  // namespace meshplan::sim
