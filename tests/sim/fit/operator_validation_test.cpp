// Operator tables, their prices worked by hand, and what is said of shapes and devices left out.
#include "sim/fit/operator_validation.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.hpp"
#include "prices/device_speeds.hpp"

namespace meshplan::sim {
namespace {

using Catch::Contains;

/// Halves and round numbers, so that prices can be worked by hand.
OperatorConstants round_constants() {
  OperatorConstants c;
  c.product_hopper = 0.5;
  c.fp8_hopper = 0.5;
  c.half_tile = 0.9;
  c.attention_hopper = 0.5;
  c.exponentials = 1;
  c.attention_block_us = 0;
  c.kernel_us = 5;
  c.permuted_bytes = 10;
  c.permuted_clocks = 0;
  return c;
}

/// An H100 whose memory, launches and fills take no time.
Cluster endless_memory(const OperatorConstants& constants) {
  Cluster sheet = without_measured_shapes(load_data_sheet("dgx-h100"));
  sheet.device.peak_tflop_per_s = {{"bf16", 1000}, {"fp8", 2000}};
  sheet.device.power_w = 1e6;  // of 0.93 of the peak
  sheet.device.memory_gb_per_s = 1e9;
  sheet.device.launch_us = 0;
  sheet.device.efficiency.half_k = 0;
  sheet.device.efficiency.half_stream_kib = 0;
  Cluster cluster = with_operator_speeds(sheet, constants);
  cluster.device.efficiency.gemm = 0.5;
  return cluster;
}

MeasuredWork row_of(const std::string& name, const std::string& line, const std::string& header) {
  return parse_measured_works(header + "\n" + line + "\n", name).front();
}

constexpr const char* kGemm = "device,dtype,m,n,k,time_us";
constexpr const char* kAttention = "device,dtype,batch,seq,heads,kv_heads,head_dim,window,time_us";
constexpr const char* kExperts =
    "device,dtype,kernels,tokens,hidden,ffn,experts,top_k,etp,ep,time_us";
constexpr const char* kNccl = "device,dtype,operation,ranks,message_size,time_us";

double seconds(const MeasuredWork& row) {
  const OperatorConstants constants = round_constants();
  return work_seconds(row, endless_memory(constants), constants);
}

}  // namespace

// 132 tiles of 128 x 256 on 132 units are one wave: 2 x 16,896 x 256 x 4,096 FLOP at half of 1,000
// TFLOP/s are 70.9 us.
TEST_CASE("A measured product is priced as one of a step", "[sim][operators]") {
  CHECK(seconds(row_of("gemm.csv", "h100_sxm,bfloat16,16896,256,4096,80", kGemm)) ==
        Approx(2 * 16896.0 * 256 * 4096 / 500e12));
}

// At half of 2,000 TFLOP/s half of the time, and three kernels of the cast to start.
TEST_CASE("A measured FP8 product holds its cast", "[sim][operators]") {
  CHECK(seconds(row_of("gemm.csv", "h100_sxm,fp8,16896,256,4096,80", kGemm)) ==
        Approx(2 * 16896.0 * 256 * 4096 / 1000e12 + 15e-6));
}

// 264 blocks of 128 queries and 4 x 33 heads of 64 + 64: 256 queries see 192 keys on average. 1,000
// TFLOP/s are 3.90625e12 exponentials a second, 16 a clock beside 4,096 FLOP.
TEST_CASE("Measured attention holds its start, products and exponentials", "[sim][operators]") {
  const MeasuredWork row =
      row_of("attention.csv", "h100_sxm,bfloat16,4,256,33,33,64,0,80", kAttention);
  const double pairs = 4 * 33 * 256.0 * 192;
  CHECK(seconds(row) == Approx(20e-6 + 4 * 64 * pairs / 500e12 + pairs / 3.90625e12));
}

// 8 of 16 experts, 2 a token: 1,024 x 2 / 2 rows, 128 an expert. Tiles of 64 x 128 fill one wave of
// 132 units, 8 x 2 x 8 of them upwards (both halves of 512) and 8 x 2 x 4 downwards, K = 512 in
// either; at 0.9 x 0.9 of half of 1,000 TFLOP/s.
TEST_CASE("Measured experts are two grouped products", "[sim][operators]") {
  const MeasuredWork row =
      row_of("moe.csv", "h100_sxm,bfloat16,x_cutlass,1024,512,512,16,2,1,2,80", kExperts);
  const double wave = 2.0 * 64 * 128 * 512 / (0.81 * 500e12 / 132);
  CHECK(seconds(row) == Approx(40e-6 + 2 * wave));
}

// nccl-tests counts what is gathered; a rank passes in its part of it.
TEST_CASE("A gather's message is what one rank passes in", "[sim][operators]") {
  const auto row = row_of("nccl.csv", "h100_sxm,half,all_gather,8,1048576,80", kNccl);
  CHECK(std::get<CollectiveWork>(row.work).bytes == 2 * 1048576 / 8);
  CHECK(is_judged(row));
  CHECK_FALSE(is_judged(row_of("nccl.csv", "h100_sxm,half,all_gather,8,262144,80", kNccl)));
  CHECK_FALSE(is_judged(row_of("gemm.csv", "h100_sxm,bfloat16,512,4096,4096,9", kGemm)));
}

// DeepEP's tables have both ways in a line: 2 of 8 experts over 8 ranks of one node are 2 ranks;
// FP8 rows with a scale for each 128 elements there, 16 bit back; counts before them belong to
// each.
TEST_CASE("A line of DeepEP's is two exchanges", "[sim][operators]") {
  const char* header =
      "device,nodes,hidden,tokens_per_rank,top_k,experts,sms,dispatch_us,dispatch_notify_us,"
      "combine_us,combine_notify_us";
  const std::string text = std::string(header) + "\nh100_sxm,1,1024,512,2,8,20,30,1,40,2\n" +
                           "h100_sxm,8,7168,512,8,256,20,30,0,40,0\n";
  const auto rows = parse_measured_works(text, "deepep.csv");
  REQUIRE(rows.size() == 4);
  const auto& out = std::get<ExchangeWork>(rows[0].work);
  const auto& back = std::get<ExchangeWork>(rows[1].work);
  CHECK(out.part == ExchangePart::Dispatch);
  CHECK(out.bytes == 1024 + 8 * 4);
  CHECK(out.token_ranks == Approx(2));
  CHECK(out.token_nodes == 1);
  CHECK(rows[0].seconds == Approx(31e-6));
  CHECK(back.part == ExchangePart::Combine);
  CHECK(back.bytes == 2048);
  CHECK(rows[1].seconds == Approx(42e-6));
  CHECK(rows[1].group == "combine, 1 node");
  CHECK(std::get<ExchangeWork>(rows[2].work).ranks == 64);
  CHECK(std::get<ExchangeWork>(rows[2].work).token_nodes == Approx(3.62901).epsilon(1e-4));
}

// Eight experts of a token lie in as many ranks as there are, up to eight.
TEST_CASE("A domain's exchange is even", "[sim][operators]") {
  const char* header =
      "device,operation,kernels,dtype,tokens_per_rank,hidden,top_k,experts,ep,distribution,time_us";
  const auto row =
      row_of("domain_exchange.csv",
             "gb200,alltoall_dispatch,NVLinkOneSided,nvfp4,512,7168,8,256,4,balanced,9", header);
  const auto& work = std::get<ExchangeWork>(row.work);
  CHECK(work.token_ranks == 4);
  CHECK(work.bytes == 7168 / 2 + 7168 / 16);
  CHECK(row.group == "one-sided dispatch");
  CHECK_THROWS_WITH(
      row_of("domain_exchange.csv",
             "gb200,alltoall_dispatch,NVLinkThreeSided,nvfp4,512,7168,8,256,4,balanced,9", header),
      Contains("NVLinkOneSided"));
}

TEST_CASE("A wrong operator table is named", "[sim][operators]") {
  CHECK_THROWS_WITH(row_of("gemm.csv", "h100_sxm,fp7,1,1,1,1", kGemm),
                    Contains("gemm.csv: line 2") && Contains("fp7"));
  CHECK_THROWS_WITH(row_of("gemm.csv", "h100_sxm,fp8,1,x,1,1", kGemm), Contains("n: 'x'"));
  CHECK_THROWS_WITH(row_of("gemm.csv", "h100_sxm,fp8,1,1,1,0", kGemm), Contains("time_us: '0'"));
  CHECK_THROWS_WITH(row_of("other.csv", "h100_sxm,fp8,1,1,1,1", kGemm), Contains("other.csv"));
  CHECK_THROWS_WITH(row_of("gemm.csv", "h100_sxm,fp8,1,1,1", "device,dtype,m,n,time_us"),
                    Contains("'k' is missing"));
}

// Blackwell measured at 0.6 of its peak with 0.4666 W a TFLOP/s; at the same energy a FLOP Hopper's
// 0.7075 W give 0.91 of its peak, more than any architecture has reached: 0.85. Ampere from Ada's
// 0.5 with 0.9669 W: 1.2821 / 0.9669 of it, 0.663.
TEST_CASE("An architecture without a table takes its relative's energy", "[sim][operators]") {
  OperatorConstants c;
  c.product_blackwell = 0.6;
  c.fp8_blackwell = 0.54;
  c.attention_blackwell = 0.7;
  const OperatorConstants hopper = without_architecture(c, Architecture::Hopper);
  CHECK(hopper.product_hopper == Approx(0.85));
  CHECK(hopper.fp8_hopper == Approx(0.85 * 0.9));
  CHECK(hopper.attention_hopper == 0.7);
  c.product_ada = 0.5;
  CHECK(without_architecture(c, Architecture::Ampere).product_ampere ==
        Approx(0.663).epsilon(1e-3));
}

// Rows that were made with another constant lead the fit back to it; every shape lies between
// others of the same error, so that neighbours say all.
TEST_CASE("A fit of operators recovers what made them", "[sim][operators]") {
  OperatorConstants truth = values_of(operator_records(), operator_constant_members());
  truth.product_hopper = 0.7;
  const Cluster cluster =
      with_operator_speeds(without_measured_shapes(load_data_sheet("dgx-h100")), truth);
  WorkTable table{.file = "gemm.csv", .rows = {}};
  for (const double m : {1024, 2048, 4096, 8192})
    for (const double k : {1024, 2048, 4096, 8192}) {
      MeasuredWork row{.device = "h100_sxm",
                       .group = "bfloat16",
                       .work = ProductWork{.m = m, .n = 4096, .k = k}};
      row.seconds = work_seconds(row, cluster, truth);
      table.rows.push_back(row);
    }
  const auto fitted = fit_operators({table}, operator_records(), one_by_one);
  CHECK(values_of(fitted, operator_constant_members()).product_hopper == Approx(0.7).epsilon(0.02));
  table.rows.push_back({"unheard-of", "bfloat16", ProductWork{.m = 1, .n = 1, .k = 1}, 1});
  const OperatorReport report = validate_operators({table}, fitted, one_by_one);
  REQUIRE(report.errors.size() == 1);
  CHECK(report.errors.front().rows == 16);
  CHECK(report.errors.front().formula < 0.02);
  CHECK(report.errors.front().interpolated < 0.02);
  CHECK(report.errors.front().left_out > 0.05);  // nothing else was measured on Hopper or Blackwell
  REQUIRE(report.unpriced.size() == 1);
  CHECK(report.unpriced.front().find("unheard-of") == 0);
}

TEST_CASE("Constants of operators have sources", "[sim][operators]") {
  CHECK(operator_records().size() == operator_constant_members().size());
  for (const ConstantRecord& record : operator_records()) {
    INFO(record.name);
    CHECK_FALSE(record.source.empty());
    CHECK_FALSE(record.determined_by.empty());
  }
}

}  // namespace meshplan::sim
