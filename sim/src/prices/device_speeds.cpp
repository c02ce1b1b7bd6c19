#include "prices/device_speeds.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/units.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

// Matrix rate of fused attention's backward over its forward: 561 of 648 TFLOP/s
// (FlashAttention-3), 370 to 581 of 484 to 688 (cuDNN 9), both on H100 with heads of 128.
constexpr double kBackwardRate = 0.75;
constexpr double kExponentialsPerClock = 16;  // of an SM (CUDA programming guide, table of rates)
constexpr int kAttentionTile = 128;           // queries that a thread block holds
// cuBLAS on H100 reaches about 1,400 of 1,979 TFLOP/s in FP8 and 795 of 989 in 16 bit: it draws
// more power at the same clock.
constexpr double kFp8Fraction = (1400.0 / 1979) / (795.0 / 989);
// nccl-tests over 8 GPUs, 16 MiB to 512 MiB: medians 0.86 on H100, 0.80 on B200, 0.79 on A100
// (docs/recipes.md).
constexpr double kAllToAllInNode = 0.82;
constexpr double kTera = 1e12;

double gemm_fraction(Architecture architecture, const Constants& c, double preset) {
  switch (architecture) {
    case Architecture::Ampere:
      return c.gemm_ampere;
    case Architecture::Hopper:
      return c.gemm_hopper;
    case Architecture::Blackwell:
      return c.gemm_blackwell;
    case Architecture::Ada:
    case Architecture::Other:
      return preset;
  }
  throw InvariantError("unknown architecture");
}

/// Power that the generation's reference board may draw: A100 SXM, H100 SXM, B200 data sheets.
double reference_power_w(Architecture architecture) {
  switch (architecture) {
    case Architecture::Ampere:
      return 400;
    case Architecture::Hopper:
      return 700;
    case Architecture::Blackwell:
      return 1000;
    case Architecture::Ada:
    case Architecture::Other:
      return 0;
  }
  throw InvariantError("unknown architecture");
}

/// Dynamic power is C V^2 f (Hennessy and Patterson, 6th edition, section 1.5): a clock ~ P where
/// the voltage is at its floor, ~ P^(1/3) where it follows the clock; between them under load.
double clock_under_power(const Device& device) {
  constexpr double kPowerExponent = 0.5;
  const double reference = reference_power_w(device.architecture);
  if (reference <= 0 || device.power_w <= 0 || device.power_w >= reference) return 1;
  return std::pow(device.power_w / reference, kPowerExponent);
}

/// Multiply-adds of 16-bit matrix units per SM and clock, times two (architecture white papers).
double flop_per_clock(Architecture architecture) {
  switch (architecture) {
    case Architecture::Ampere:
      return 2048;
    case Architecture::Hopper:
      return 4096;
    case Architecture::Blackwell:
      return 8192;
    case Architecture::Ada:
    case Architecture::Other:
      return 1024;
  }
  throw InvariantError("unknown architecture");
}

/// Matrix rate of a generation of fused attention over that of the one the constants speak of, with
/// exponentials apart. On Hopper with heads of 128 the second generation reaches about 350 and the
/// third 616 TFLOP/s forward (Shah et al. 2024, FlashAttention-3, section 4.1): less an exponential
/// unit's 0.256 ps a pair, 1.21 and 0.58 ps. On Ampere the second reaches 230 TFLOP/s and Triton's
/// form of the first about 150 (Dao 2023, FlashAttention-2, section 4.1): 1.81 and 3.0 ps.
double generation_fraction(FlashGeneration generation, Architecture architecture) {
  constexpr double kFirstOverSecond = 0.62;
  constexpr double kSecondOverThird = 0.48;
  const bool third =
      architecture == Architecture::Hopper || architecture == Architecture::Blackwell;
  const double second = third ? kSecondOverThird : 1;
  switch (generation) {
    case FlashGeneration::One:
      return kFirstOverSecond * second;
    case FlashGeneration::Two:
      return second;
    case FlashGeneration::Three:
      return 1;
  }
  throw InvariantError("unknown generation");
}

double half_precision_peak(const Device& device) {
  for (const char* dtype : {"bf16", "fp32"})
    if (const auto found = device.peak_tflop_per_s.find(dtype);
        found != device.peak_tflop_per_s.end())
      return found->second * kTera;
  return 0;
}

}  // namespace

double fp8_fraction(Architecture architecture, const Constants& c) {
  switch (architecture) {
    case Architecture::Hopper:
      return kFp8Fraction;
    case Architecture::Blackwell:
      return c.gemm_blackwell_fp8 / c.gemm_blackwell;
    case Architecture::Ampere:
    case Architecture::Ada:
    case Architecture::Other:
      return 1;
  }
  throw InvariantError("unknown architecture");
}

Cluster with_fitted_speeds(const Cluster& data_sheet, const Constants& c, FlashGeneration flash) {
  Cluster cluster = data_sheet;
  Device& device = cluster.device;
  if (device.kind == DeviceKind::Cpu) return cluster;
  Efficiency& efficiency = device.efficiency;
  const double clock = clock_under_power(device);
  efficiency.gemm = gemm_fraction(device.architecture, c, efficiency.gemm) * clock;
  efficiency.fp8 = fp8_fraction(device.architecture, c);
  efficiency.memory = c.memory;
  device.launch_us = c.kernel_us;
  const double fraction =
      device.architecture == Architecture::Ampere ? c.flash_ampere : c.flash_hopper;
  efficiency.attention_forward = fraction * clock * generation_fraction(flash, device.architecture);
  efficiency.attention_backward = efficiency.attention_forward * kBackwardRate;
  efficiency.attention_tile = kAttentionTile;
  efficiency.exponentials_per_ps = half_precision_peak(device) /
                                   flop_per_clock(device.architecture) * kExponentialsPerClock /
                                   kTera;
  cluster.communication.device_share = c.dp_exposed;
  cluster.communication.all_to_all = c.all_to_all;
  cluster.communication.all_to_all_inner = kAllToAllInNode;
  cluster.jitter = c.jitter;
  cluster.step_overhead_ms = c.step_overhead_ms;
  return cluster;
}

double product_seconds(const ProductShape& shape, double peak, double bytes,
                       const Cluster& cluster) {
  const double compute =
      batched_gemm_seconds(shape.count, shape.m, shape.n, shape.k, peak, cluster);
  const Device& device = cluster.device;
  return std::max(compute, bytes / (device.efficiency.memory * device.memory_gb_per_s * kGigabyte));
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
  if (efficiency.attention_tile <= 0) return seconds;
  constexpr double kWorstQuantization = 4;
  const double units = cluster.device.num_units;
  const double waves = std::ceil(shape.blocks / units) * units / std::max(1.0, shape.blocks);
  return seconds * std::min(waves, kWorstQuantization);
}

}  // namespace meshplan::sim
