#include "prices/device_speeds.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/units.hpp"
#include "prices/measured_shapes.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

// Rate of fused attention's backward over its forward's: 561 of 648 TFLOP/s (FlashAttention-3), 370
// to 581 of 484 to 688 (cuDNN 9), both on H100 with heads of 128.
constexpr double kBackwardRate = 0.75;
// Of an SM (CUDA programming guide, table of rates). A CU has four units of 16 lanes that take four
// clocks for one, on CDNA 4 two (AMD CDNA 4 white paper: twice the rate of transcendentals).
constexpr double kExponentialsPerClock = 16;
constexpr double kExponentialsOfCdna4 = 2;  // over the others'
constexpr int kAttentionTile = 128;         // queries that a thread block holds
constexpr double kMostOfPeak = 0.93;        // that products reach where no power limit counts
constexpr double kTera = 1e12;

double half_precision_peak(const Device& device) {
  for (const char* dtype : {"bf16", "fp32"})
    if (const auto found = device.peak_tflop_per_s.find(dtype);
        found != device.peak_tflop_per_s.end())
      return found->second * kTera;
  return 0;
}

/// AMD's: nothing that was fitted on NVIDIA's kernels and NCCL speaks of them.
bool is_cdna(Architecture architecture) {
  return architecture == Architecture::Cdna3 || architecture == Architecture::Cdna4;
}

/// A board's clock at load over that of the measured boards of its architecture. Dynamic power is
/// C V^2 f (Hennessy and Patterson, 6th edition, section 1.5): a clock ~ P where the voltage is at
/// its floor, ~ P^(1/3) where it follows the clock; between them under load.
double clock_under_power(const Device& device) {
  constexpr double kPowerExponent = 0.5;
  const double measured = measured_watts_per_tflop(device.architecture);
  const double peak = half_precision_peak(device) / kTera;
  if (measured <= 0 || device.power_w <= 0 || peak <= 0) return 1;
  return std::pow(device.power_w / peak / measured, kPowerExponent);
}

/// Multiply-adds of 16-bit matrix units per SM, or CU, and clock, times two (architecture white
/// papers).
double flop_per_clock(Architecture architecture) {
  switch (architecture) {
    case Architecture::Ampere:
    case Architecture::Cdna3:
      return 2048;
    case Architecture::Hopper:
    case Architecture::Cdna4:
      return 4096;
    case Architecture::Blackwell:
      return 8192;
    case Architecture::Ada:
    case Architecture::BlackwellRtx:
    case Architecture::Other:
      return 1024;
  }
  throw InvariantError("unknown architecture");
}

/// Matrix rate of a generation of fused attention over that of the serving kernels that the
/// operator constants speak of, with exponentials apart: forward under a causal mask, heads of 128,
/// 16,384 tokens. On A100 FlashAttention-2 reaches about 195 TFLOP/s and Triton's form of the first
/// 0.62 of its rate (Dao 2023, FlashAttention-2, section 4.1): less 0.26 ps of a pair's 2.63 for
/// exponentials, 216 TFLOP/s of matrix work, where the tables' kernels do 166. On H100 the second
/// reaches about 350 and the third 616 (Shah et al. 2024, FlashAttention-3, section 4.1): less 0.16
/// ps, 394 and 766, the tables' 681. On Blackwell training and serving stacks take kernels of one
/// library.
double generation_fraction(FlashGeneration generation, Architecture architecture) {
  if (is_cdna(architecture)) return 1;  // kernels of their own; the file says what they reach
  constexpr double kFirstOverSecond = 0.62;
  constexpr double kSecondOnA100 = 216.0 / 166;
  constexpr double kThirdOnH100 = 766.0 / 681;
  constexpr double kSecondOverThird = 394.0 / 766;
  const bool third =
      architecture == Architecture::Hopper || architecture == Architecture::Blackwell;
  const double best = architecture == Architecture::Blackwell ? 1
                      : third                                 ? kThirdOnH100
                                                              : kSecondOnA100;
  const double second = third ? best * kSecondOverThird : best;
  switch (generation) {
    case FlashGeneration::One:
      return kFirstOverSecond * second;
    case FlashGeneration::Two:
      return second;
    case FlashGeneration::Three:
      return best;
  }
  throw InvariantError("unknown generation");
}

/// Time in a step over time alone, of products in 16 bit and of all else that fills the matrix
/// units.
struct StepFactors {
  double half = 1;
  double other = 1;
};

/// No run on Ada has been seen: its units are Ampere's.
StepFactors step_factors(Architecture architecture, const Constants& c) {
  switch (architecture) {
    case Architecture::Ampere:
    case Architecture::Ada:
    case Architecture::BlackwellRtx:
      return {c.step_ampere, c.step_ampere};
    case Architecture::Hopper:
      return {c.step_hopper, c.step_hopper};
    case Architecture::Blackwell:
      return {c.step_blackwell_half, c.step_blackwell};
    case Architecture::Cdna3:
    case Architecture::Cdna4:
    case Architecture::Other:
      return {};
  }
  throw InvariantError("unknown architecture");
}

double exponentials_per_clock(Architecture architecture) {
  return kExponentialsPerClock * (architecture == Architecture::Cdna4 ? kExponentialsOfCdna4 : 1.0);
}

}  // namespace

double unit_clocks_per_s(const Device& device) {
  constexpr double kGiga = 1e9;
  if (device.clock_ghz) return *device.clock_ghz * kGiga * device.num_units;
  return half_precision_peak(device) / flop_per_clock(device.architecture);
}

Cluster with_operator_speeds(const Cluster& data_sheet, const OperatorConstants& c) {
  Cluster cluster = data_sheet;
  Device& device = cluster.device;
  if (device.kind == DeviceKind::Cpu) return cluster;
  Efficiency& efficiency = device.efficiency;
  const ArchitectureRates rates = rates_of(device.architecture, c);
  efficiency.attention_tile = kAttentionTile;
  efficiency.exponentials_per_ps =
      unit_clocks_per_s(device) * exponentials_per_clock(device.architecture) / kTera;
  if (is_cdna(device.architecture)) return cluster;
  cluster.communication.own_part = c.own_part;
  cluster.communication.all_to_all_inner = c.all_to_all;
  for (Protocol& protocol : cluster.communication.protocols)
    if (protocol.name == "simple") protocol.base_us = c.simple_us;
  efficiency.attention_block_us = c.attention_block_us;
  efficiency.clock = 1;
  efficiency.exponentials_per_ps /= c.exponentials;
  if (device.architecture == Architecture::Other) return cluster;
  const double clock = clock_under_power(device);
  efficiency.gemm = std::min(kMostOfPeak, rates.product * clock);
  efficiency.half_tile = rates.half_tile;
  efficiency.fp8 = rates.fp8 > 0 ? rates.fp8 / rates.product : 1;
  efficiency.fp8_block = rates.fp8_block > 0 ? rates.fp8_block / rates.product : 1;
  efficiency.fp4 = rates.fp4 > 0 ? rates.fp4 / rates.product : 1;
  efficiency.attention_forward = rates.attention * std::min(1.0, clock);
  const bool inside = !cluster.fabric.empty() && cluster.devices_per_node > 1;
  if (inside) cluster.fabric.front().reached = rates.links;
  cluster.communication.nvls = rates.nvls;
  cluster.communication.nvls_us = rates.nvls > 0 ? c.nvls_us : 0;
  return cluster;
}

Cluster with_fitted_speeds(const Cluster& data_sheet, const Constants& c, FlashGeneration flash) {
  Cluster cluster = with_operator_speeds(data_sheet, operator_constants());
  Device& device = cluster.device;
  if (device.kind == DeviceKind::Cpu) return cluster;
  Efficiency& efficiency = device.efficiency;
  const StepFactors step = step_factors(device.architecture, c);
  const double attention = generation_fraction(flash, device.architecture) / step.other;
  efficiency.gemm /= step.half;
  for (double Efficiency::*low : {&Efficiency::fp8, &Efficiency::fp8_block, &Efficiency::fp4})
    efficiency.*low *= step.half / step.other;  // they are parts of gemm
  efficiency.attention_forward *= attention;
  efficiency.attention_backward = efficiency.attention_forward * kBackwardRate;
  efficiency.exponentials_per_ps /= step.other;
  efficiency.clock = 1 / step.other;
  if (!is_cdna(device.architecture)) {
    efficiency.memory = c.memory;
    device.launch_us = operator_constants().kernel_us;
    cluster.communication.all_to_all = c.all_to_all;
  }
  cluster.communication.device_share = c.dp_exposed;
  cluster.jitter = c.jitter;
  cluster.step_overhead_ms = c.step_overhead_ms;
  return cluster;
}

double product_seconds(const ProductShape& shape, double peak, double bytes,
                       const Cluster& cluster) {
  const double compute = tiled_product_seconds(shape, peak, cluster);
  const Device& device = cluster.device;
  const double traffic = bytes / (device.efficiency.memory * device.memory_gb_per_s * kGigabyte);
  return std::max(compute, traffic) * correction_of(shape, cluster).factor;
}

double ProductShape::fill() const {
  if (!type) return 1;
  switch (*type) {
    case OperandType::Half:
      return 1;
    case OperandType::Fp8:
    case OperandType::Fp8Block:
      return 2;
    case OperandType::Fp4:
      return 4;
  }
  throw InvariantError("unknown operand type");
}

ShapeCorrection correction_of(const ProductShape& shape, const Cluster& cluster) {
  if (!shape.type || shape.count != 1 || !shape.forward) return {};
  return product_correction({*shape.type, shape.m, shape.n, shape.k}, cluster.device.operators);
}

ShapeCorrection correction_of(const AttentionShape& shape, const Cluster& cluster) {
  if (!shape.causal || shape.backward) return {};
  return attention_correction(*shape.causal, cluster.device.operators);
}

ShapeCorrection correction_of(const LinearAttentionWork& work, const Cluster& cluster) {
  if (work.backward) return {};
  return linear_attention_correction(work, cluster.device.operators);
}

ShapeCorrection correction_of(const ShortConvolutionWork& work, const Cluster& cluster) {
  if (work.backward) return {};
  return convolution_correction(work, cluster.device.operators);
}

double attended_keys(double seq, double window) {
  if (window <= 0 || window >= seq) return (seq + 1) / 2;
  return window - window * window / (2 * seq);
}

double causal_keys(double seq, double window, const OperatorConstants& constants) {
  const double causal = (seq + kAttentionTile) / 2;
  if (window <= 0 || window >= seq) return causal;
  return std::min(causal, attended_keys(seq, window) + constants.window_keys);
}

double attention_flops(const AttentionShape& shape) {
  const double products = shape.backward ? 2.5 : 1;
  return products * 2 * shape.pairs * shape.head_sizes;
}

double attention_seconds(const AttentionShape& shape, double peak, const Cluster& cluster) {
  // Exponentials run on another unit (Shah et al. 2024, FlashAttention-3, section 2.2), which these
  // kernels hide only in part.
  const Efficiency& efficiency = cluster.device.efficiency;
  const double rate = shape.backward ? efficiency.attention_backward : efficiency.attention_forward;
  double seconds = attention_flops(shape) / (rate * peak);
  if (efficiency.exponentials_per_ps > 0)
    seconds += shape.exponentials * shape.pairs / (efficiency.exponentials_per_ps * kTera);
  seconds *= correction_of(shape, cluster).factor;
  if (efficiency.attention_tile <= 0) return seconds;
  constexpr double kWorstQuantization = 4;
  const double units = cluster.device.num_units;
  const double waves = std::ceil(shape.blocks / units);
  const double quantization = waves * units / std::max(1.0, shape.blocks);
  return seconds * std::min(quantization, kWorstQuantization) +
         waves * efficiency.attention_block_us / kMicroseconds;
}

}  // namespace meshplan::sim
