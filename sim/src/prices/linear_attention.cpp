#include "sim/prices/linear_attention.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/units.hpp"
#include "prices/attention/linear_attention_kernels.hpp"
#include "prices/device_speeds.hpp"
#include "prices/measured_shapes.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

/// Last cache of an architecture's largest board: A100 40 MiB, L40S 96, H100 50, B200 126, RTX PRO
/// 6000 128 (NVIDIA's architecture white papers and data sheets), MI300X and MI355X 256 (AMD's).
double cache_bytes(Architecture architecture) {
  constexpr double kMebibyte = 1 << 20;
  switch (architecture) {
    case Architecture::Ampere:
      return 40 * kMebibyte;
    case Architecture::Ada:
      return 96 * kMebibyte;
    case Architecture::Hopper:
      return 50 * kMebibyte;
    case Architecture::Blackwell:
      return 126 * kMebibyte;
    case Architecture::BlackwellRtx:
      return 128 * kMebibyte;
    case Architecture::Cdna3:
    case Architecture::Cdna4:
      return 256 * kMebibyte;
    case Architecture::Other:
      return 0;
  }
  throw InvariantError("unknown architecture");
}

/// Seconds of all SMs for `clocks` of them together.
double unit_seconds(double clocks, const Device& device) {
  return clocks / (unit_clocks_per_s(device) * device.efficiency.clock);
}

/// Of what a kernel moves. @param kept  bytes that the kernel before has left in the cache
double traffic_seconds(double bytes, double kept, const Device& device,
                       const OperatorConstants& c) {
  if (bytes <= kept) return 0;
  return bytes / (c.linear_memory * device.memory_gb_per_s * kGigabyte);
}

/// Blocks load, compute and store in turn, so that neither hides the other whole: the root of the
/// sum of their squares.
double chunk_seconds(const ChunkKernel& kernel, const Device& device, const OperatorConstants& c) {
  // Of an SM and clock: CUDA programming guide, table of rates. A decay is an exponential and in
  // fp32 a difference, a product, two multiply-adds and its part of sums across threads.
  constexpr double kExponentials = 16, kSingles = 128, kOperations = 5;
  const double decay_clocks = kernel.decays * (1 / kExponentials + kOperations / kSingles);
  // Half of the cache holds what a kernel takes from the one before, half what it leaves the next.
  const double kept = cache_bytes(device.architecture) / 2;
  return std::hypot(traffic_seconds(kernel.bytes, kept, device, c),
                    unit_seconds(kernel.flops / c.linear_flops, device)) +
         unit_seconds(decay_clocks, device);
}

double on_gpu_seconds(const LinearAttentionWork& work, const Device& device,
                      const OperatorConstants& c) {
  const double chunks = std::ceil(work.seq / work.chunk);
  double seconds = 0;
  for (const ChunkKernel& kernel : chunk_kernels(work)) {
    seconds += c.kernel_us / kMicroseconds + chunk_seconds(kernel, device, c);
    if (kernel.chunk_after_chunk) seconds += chunks * c.linear_step_us / kMicroseconds;
  }
  return seconds;
}

double on_gpu_seconds(const ShortConvolutionWork& work, const Device& device,
                      const OperatorConstants& c) {
  constexpr double kForwardTaps = 4;  // that the clocks were measured with
  const double elements = work.batch * work.seq * work.channels;
  const double passes = work.backward ? 3 : 1;
  const double clocks = c.convolution_clocks * passes * work.taps / kForwardTaps;
  const double part = 1.0 / work.kernels;
  const double kept = cache_bytes(device.architecture);
  return work.kernels *
         (c.kernel_us / kMicroseconds +
          std::max(traffic_seconds(part * short_convolution_bytes(work), kept, device, c),
                   unit_seconds(part * elements * clocks, device)));
}

/// A processor core keeps a chunk in its caches: products at their rate, or one pass over memory.
double on_cpu_seconds(double flops, double bytes, const Cluster& cluster) {
  const double rate = cluster.device.efficiency.gemm * peak_flop_per_s(cluster, DType::F32);
  return std::max(flops / rate, stream_seconds(bytes, cluster));
}

std::string name_of(LinearAttention kind) {
  switch (kind) {
    case LinearAttention::GatedDelta:
      return "gdn";
    case LinearAttention::KimiDelta:
      return "kda";
    case LinearAttention::Mamba2:
      return "mamba2";
    case LinearAttention::Simple:
      return "simple";
  }
  throw InvariantError("unknown linear attention");
}

}  // namespace

double linear_attention_flops(const LinearAttentionWork& work) {
  double sum = 0;
  for (const ChunkKernel& kernel : chunk_kernels(work)) sum += kernel.flops;
  return sum;
}

double linear_attention_bytes(const LinearAttentionWork& work) {
  double sum = 0;
  for (const ChunkKernel& kernel : chunk_kernels(work)) sum += kernel.bytes;
  return sum;
}

int linear_attention_kernels(const LinearAttentionWork& work) {
  return static_cast<int>(chunk_kernels(work).size());
}

double linear_attention_seconds(const LinearAttentionWork& work, const Cluster& cluster,
                                const OperatorConstants& constants) {
  if (cluster.device.kind == DeviceKind::Cpu)
    return on_cpu_seconds(linear_attention_flops(work), linear_attention_bytes(work), cluster);
  return on_gpu_seconds(work, cluster.device, constants) * correction_of(work, cluster).factor;
}

double short_convolution_flops(const ShortConvolutionWork& work) {
  return (work.backward ? 3 : 1) * 2 * work.taps * work.batch * work.seq * work.channels;
}

double short_convolution_bytes(const ShortConvolutionWork& work) {
  constexpr double kElement = 2;
  return (work.backward ? 3 : 2) * kElement * work.batch * work.seq * work.channels;
}

double short_convolution_seconds(const ShortConvolutionWork& work, const Cluster& cluster,
                                 const OperatorConstants& constants) {
  if (cluster.device.kind == DeviceKind::Cpu)
    return on_cpu_seconds(short_convolution_flops(work), short_convolution_bytes(work), cluster);
  return on_gpu_seconds(work, cluster.device, constants) * correction_of(work, cluster).factor;
}

std::string group_of(const LinearAttentionWork& work) {
  return name_of(work.kind) + " chunks";
}

std::string group_of(const ShortConvolutionWork& work) {
  return name_of(work.kind) + " convolution";
}

}  // namespace meshplan::sim
