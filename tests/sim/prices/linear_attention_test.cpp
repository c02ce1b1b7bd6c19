// Linear attention counted and priced by hand, and what its timed shapes say.
#include "sim/prices/linear_attention.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <span>

#include "core/embedded_file.hpp"
#include "core/units.hpp"
#include "prices/device_speeds.hpp"

namespace meshplan::sim {

std::span<const EmbeddedFile> operator_table_presets();

namespace {

/// Heads of Qwen3-Next: 16 of keys, 32 of values.
LinearAttentionWork gated_delta(double batch, double seq) {
  return {.batch = batch,
          .seq = seq,
          .key_heads = 16,
          .key_size = 128,
          .value_heads = 32,
          .value_size = 128};
}

Cluster running_alone(std::string_view preset) {
  return with_operator_speeds(load_data_sheet(preset), operator_constants());
}

LinearAttentionWork backward_of(LinearAttentionWork work) {
  work.backward = true;
  return work;
}

/// FLOPs of a token and value head.
double flops_of(LinearAttentionWork work) {
  return linear_attention_flops(work) / (work.batch * work.seq * work.value_heads);
}

}  // namespace

// K = V = 128, C = 64.
TEST_CASE("Products of the chunked delta rule are counted", "[sim][linear_attention]") {
  LinearAttentionWork work = gated_delta(2, 4096);
  const double forward = 6 * 128 * 128 + 64 * (6 * 128 + 4 * 128) + 64 * 64 / 3.0;
  CHECK(flops_of(work) == Approx(forward));
  const double backward = 16 * 128 * 128 + 64 * (20 * 128 + 10 * 128) + 4 * 64 * 64;
  CHECK(flops_of(backward_of(work)) == Approx(backward));
  CHECK(backward / forward == Approx(2.89).epsilon(0.01));
  work.kind = LinearAttention::KimiDelta;
  CHECK(flops_of(work) == Approx(forward));
  CHECK(flops_of(backward_of(work)) ==
        Approx(16 * 128 * 128 + 64 * (14 * 128 + 10 * 128) + 4 * 64 * 64));
  work.kind = LinearAttention::Simple;
  CHECK(flops_of(work) == Approx(4 * 128 * 128 + 64 * 4 * 128));
  CHECK(flops_of(backward_of(work)) == Approx(10 * 128 * 128 + 64 * 12 * 128));
}

// A chunk of Mamba 2 is one more product of each size than Dao and Gu's table of section 6: states
// in, states out, scores, scores times inputs. 64 heads of 64 share 8 groups with states of 128.
TEST_CASE("Products of Mamba 2's chunks are counted", "[sim][linear_attention]") {
  const LinearAttentionWork work{.kind = LinearAttention::Mamba2,
                                 .batch = 1,
                                 .seq = 4096,
                                 .key_heads = 8,
                                 .key_size = 128,
                                 .value_heads = 64,
                                 .value_size = 64,
                                 .chunk = 256};
  const double shared = 256 * 128 * 8 / 64.0;
  CHECK(flops_of(work) == Approx(4 * 128 * 64 + 2 * 256 * 64 + 2 * shared));
  CHECK(flops_of(backward_of(work)) == Approx(10 * 128 * 64 + 6 * 256 * 64 + 6 * shared));
}

// Keys and values read, outputs written; the rest are what kernels hand to each other: scores in
// fp32 and 16 bits, w, u and v', and a state of 128 x 128 for each 64 tokens, twice.
TEST_CASE("Bytes of the gated delta rule are counted", "[sim][linear_attention]") {
  const LinearAttentionWork work = gated_delta(1, 4096);
  const double key = 2 * 128, value = 2 * 128, state = 2 * 128 * 128 / 64.0;
  const double of_key_head = (4 + 5) * key;
  const double of_value_head = 8 + 64 * (4 + 4 + 2 + 2) + 2 * key + 6 * value + 2 * state;
  CHECK(linear_attention_bytes(work) == Approx(4096 * (16 * of_key_head + 32 * of_value_head)));
  CHECK(linear_attention_kernels(work) == 8);
  CHECK(linear_attention_bytes(backward_of(work)) > 2 * linear_attention_bytes(work));
}

// Memory without end and 1,000 FLOP a clock: 8 starts of 5 us, 64 steps of 1 us, and the products
// at 1,000 x 241.6e9 FLOP/s; an H100's 989.4 TFLOP/s are 4,096 a clock.
TEST_CASE("A recurrence takes its starts, steps and products", "[sim][linear_attention]") {
  OperatorConstants c;
  c.kernel_us = 5;
  c.linear_step_us = 1;
  c.linear_flops = 1000;
  Cluster h100 = without_measured_shapes(load_data_sheet("dgx-h100"));
  h100.device.memory_gb_per_s = 1e9;
  h100 = with_operator_speeds(h100, c);
  LinearAttentionWork work = gated_delta(1, 4096);
  const double products = linear_attention_flops(work) / (1000 * 989.4e12 / 4096);
  CHECK(linear_attention_seconds(work, h100, c) == Approx(40e-6 + 64e-6 + products));
  h100.device.efficiency.clock = 0.5;
  CHECK(linear_attention_seconds(work, h100, c) == Approx(40e-6 + 64e-6 + 2 * products));
  h100.device.efficiency.clock = 1;
  work.backward = true;  // states are computed again, and their gradients
  CHECK(linear_attention_seconds(work, h100, c) ==
        Approx(50e-6 + 128e-6 + linear_attention_flops(work) / (1000 * 989.4e12 / 4096)));
}

// 8,192 channels of 8,192 tokens are 268 MB, more than any cache: half of 3,350 GB/s, or 0.5 clocks
// of an SM each; 16 MB are still in the cache.
TEST_CASE("A short convolution takes its bytes or its clocks", "[sim][linear_attention]") {
  OperatorConstants c;
  c.kernel_us = 5;
  c.linear_memory = 0.5;
  c.convolution_clocks = 0;
  const Cluster h100 =
      with_operator_speeds(without_measured_shapes(load_data_sheet("dgx-h100")), c);
  ShortConvolutionWork work{.batch = 1, .seq = 8192, .channels = 8192};
  const double elements = 8192.0 * 8192;
  CHECK(short_convolution_flops(work) == 8 * elements);
  CHECK(short_convolution_seconds(work, h100, c) == Approx(5e-6 + 4 * elements / 1675e9));
  work.backward = true;
  CHECK(short_convolution_flops(work) == 24 * elements);
  CHECK(short_convolution_seconds(work, h100, c) == Approx(5e-6 + 6 * elements / 1675e9));
  c.convolution_clocks = 0.5;
  work = {.batch = 1, .seq = 512, .channels = 8192};
  CHECK(short_convolution_seconds(work, h100, c) ==
        Approx(5e-6 + 0.5 * 512 * 8192 / (989.4e12 / 4096)));
  work.kernels = 3;
  CHECK(short_convolution_seconds(work, h100, c) ==
        Approx(15e-6 + 0.5 * 512 * 8192 / (989.4e12 / 4096)));
}

TEST_CASE("A training step's clock is slower than an operator's alone", "[sim][linear_attention]") {
  const Cluster sheet = load_data_sheet("dgx-h100");
  const Cluster step = with_fitted_speeds(sheet, {}, FlashGeneration::Three);
  CHECK(step.device.efficiency.clock < 1);
  const LinearAttentionWork work = backward_of(gated_delta(4, 8192));
  CHECK(linear_attention_seconds(work, step) >
        linear_attention_seconds(work, running_alone("dgx-h100")));
}

// Every row of the shipped tables.
TEST_CASE("Timed shapes of linear attention take what was measured", "[sim][linear_attention]") {
  int rows = 0;
  for (const EmbeddedFile& file : operator_table_presets()) {
    if (!file.name.ends_with(".linear_attention")) continue;
    INFO(file.name);
    const std::string device(file.name.substr(0, file.name.find('.')));
    const Cluster cluster = running_alone(data_sheet_name(device));
    const Cluster formula = without_measured_shapes(cluster);
    for (const MeasuredWork& row : parse_measured_works(file.text, "linear_attention.csv")) {
      CHECK(work_seconds(row, cluster, operator_constants()) == Approx(row.seconds).epsilon(0.02));
      const double ratio = work_seconds(row, formula, operator_constants()) / row.seconds;
      CHECK(ratio > 0.25);  // what just fits into the L40S' cache, or just does not, errs most
      CHECK(ratio < 4.5);
      ++rows;
    }
  }
  CHECK(rows > 1000);
}

TEST_CASE("Tables of linear attention correct forward alone", "[sim][linear_attention]") {
  const Cluster h100 = running_alone("dgx-h100");
  const LinearAttentionWork work = gated_delta(4, 8192);
  CHECK(correction_of(work, h100).near);
  CHECK(correction_of(work, h100).factor != 1);
  CHECK(correction_of(backward_of(work), h100).factor == 1);
  LinearAttentionWork other = work;
  other.kind = LinearAttention::Simple;
  CHECK(correction_of(other, h100).factor == 1);
  CHECK(correction_of(work, running_alone("dgx-b300")).factor == 1);  // a data sheet alone
  const ShortConvolutionWork convolution{.batch = 1, .seq = 1024, .channels = 8192};
  CHECK(correction_of(convolution, h100).near);
}

TEST_CASE("Rows of linear attention are their recurrence or their convolution",
          "[sim][linear_attention]") {
  const std::string text =
      "device,kind,kernel,batch,seq,hidden,heads_k,dim_k,heads_v,dim_v,state,groups,chunk,time_us\n"
      "h100_sxm,gdn,chunk_gated_delta_rule,2,1024,2048,16,128,32,128,,,,80\n"
      "h100_sxm,kda,causal_conv1d_fn_qkv3,2,1024,7168,96,128,96,128,,,,90\n"
      "h100_sxm,mamba2,causal_conv1d_fn,1,1024,4096,128,128,128,64,128,8,128,20\n";
  const auto rows = parse_measured_works(text, "linear_attention.csv");
  REQUIRE(rows.size() == 3);
  CHECK(std::get<LinearAttentionWork>(rows[0].work) == gated_delta(2, 1024));
  CHECK(rows[0].group == "gdn chunks");
  CHECK(rows[0].seconds == Approx(80e-6));
  const auto& three = std::get<ShortConvolutionWork>(rows[1].work);
  CHECK(three.kernels == 3);
  CHECK(three.channels == 3 * 96 * 128);
  CHECK(rows[1].group == "kda convolution");
  CHECK(std::get<ShortConvolutionWork>(rows[2].work).channels == 128 * 64 + 2 * 8 * 128);
}

}  // namespace meshplan::sim
