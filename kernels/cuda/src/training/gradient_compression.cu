#include "device/flat.cuh"
#include "device/reduce.cuh"
#include "kernels/training/gradient_compression.hpp"
#include "training/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr float kMaxInt8 = 127.0F;
constexpr int kMaxSelectBlock = 4096;  // 16 KiB of shared memory: 8 blocks share an SM

/// Gradients are so many times what errors are kept as.
__device__ float factor_of(const ErrorUnit& unit) {
  return unit.applied != nullptr ? *unit.applied / *unit.wanted : 1.0F;
}

__device__ float with_error(const float* gradient, const float* error, float factor,
                            std::int64_t i) {
  return error != nullptr ? gradient[i] + factor * error[i] : gradient[i];
}

/// A warp for each block of elements.
__global__ void quantize_kernel(const QuantizeInt8 op) {
  const std::int64_t lane = threadIdx.x % kWarp;
  const std::int64_t block = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const std::int64_t first = block * op.block;
  if (first >= op.count) return;
  const std::int64_t end = first + op.block < op.count ? first + op.block : op.count;
  const float factor = factor_of(op.unit);
  float max = 0.0F;
  float check = 0.0F;  // becomes NaN if a number is not finite
  for (std::int64_t i = first + lane; i < end; i += kWarp) {
    const float v = with_error(op.gradient, op.error, factor, i);
    max = fmaxf(max, fabsf(v));
    check += v * 0.0F;
  }
  max = warp_reduce(max, Max());
  check = warp_reduce(check, Sum());
  const bool finite = check == 0.0F;
  const float scale = finite ? max / kMaxInt8 : NAN;
  // A scale of 0 or below the normal numbers has no useful inverse: everything becomes 0.
  const float inverse = finite && scale >= 0x1p-126F ? 1.0F / scale : 0.0F;
  if (lane == 0) op.scales[block] = scale;
  for (std::int64_t i = first + lane; i < end; i += kWarp) {
    const float v = with_error(op.gradient, op.error, factor, i);
    // Gaps between parameters stay zero beside a number that is not finite.
    const int q = finite ? __float2int_rn(v * inverse) : v * 0.0F == 0.0F ? 0 : 1;
    op.quantized[i] = static_cast<std::int8_t>(q);
    if (op.error != nullptr) op.error[i] = (v - static_cast<float>(q) * scale) / factor;
  }
}

__global__ void dequantize_kernel(const DequantizeInt8 op) {
  for_each_pack<1>(op.count, [&](std::int64_t i, auto /*one*/) {
    const int q = op.quantized[i];
    const float v = q == 0 ? 0.0F : static_cast<float>(q) * op.scales[i / op.block];
    op.out[i] = op.accumulate ? op.out[i] + v : v;
  });
}

/// |v| as an integer that orders the same; NaN above everything.
__device__ unsigned magnitude_of(float v) {
  return __float_as_uint(v) & 0x7fffffffU;
}

/// How many of the block's magnitudes are at least `threshold`; all threads get it.
__device__ int count_from(const unsigned* magnitudes, int length, unsigned threshold) {
  int count = 0;
  for (int i = static_cast<int>(threadIdx.x); i < length; i += kThreads)
    count += magnitudes[i] >= threshold ? 1 : 0;
  return group_reduce<kThreads>(count, Sum());
}

/// A block of threads for each block of elements: the keep-th largest magnitude bit by bit, then
/// the elements above it and the first of those equal to it, in order.
__global__ void select_kernel(const TopKSelect op) {
  auto* magnitudes = dynamic_shared<unsigned>();
  const std::int64_t first = std::int64_t{blockIdx.x} * op.block;
  const std::int64_t left = op.count - first;
  const int length = left < op.block ? static_cast<int>(left) : op.block;
  const int keep = op.keep < length ? op.keep : length;
  const float factor = factor_of(op.unit);
  for (int i = static_cast<int>(threadIdx.x); i < length; i += kThreads)
    magnitudes[i] = magnitude_of(with_error(op.gradient, op.error, factor, first + i));
  __syncthreads();
  unsigned threshold = 0;  // the largest one that at least `keep` elements reach
  for (int bit = 30; bit >= 0; --bit) {
    const unsigned higher = threshold | 1U << bit;
    if (count_from(magnitudes, length, higher) >= keep) threshold = higher;
  }
  const int above = count_from(magnitudes, length, threshold + 1);
  int ties_seen = 0;
  int written = 0;
  std::int32_t* indices = op.indices + std::int64_t{blockIdx.x} * op.keep;
  float* values = op.values + std::int64_t{blockIdx.x} * op.keep;
  for (int start = 0; start < length; start += kThreads) {
    const int i = start + static_cast<int>(threadIdx.x);
    const bool tie = i < length && magnitudes[i] == threshold;
    int ties = 0;
    const int tie_rank = ties_seen + block_exclusive_sum<kThreads>(tie ? 1 : 0, ties);
    const bool chosen =
        i < length && (magnitudes[i] > threshold || (tie && tie_rank < keep - above));
    int count = 0;
    const int place = written + block_exclusive_sum<kThreads>(chosen ? 1 : 0, count);
    if (i < length) {
      const float v = with_error(op.gradient, op.error, factor, first + i);
      if (chosen) {
        indices[place] = static_cast<std::int32_t>(first + i);
        values[place] = v;
      }
      if (op.error != nullptr) op.error[first + i] = chosen ? 0.0F : v / factor;
    }
    ties_seen += ties;
    written += count;
  }
  for (int i = keep + static_cast<int>(threadIdx.x); i < op.keep; i += kThreads) {
    indices[i] = -1;
    values[i] = 0.0F;
  }
}

__global__ void scatter_kernel(const TopKScatterAdd op) {
  for_each_pack<1>(op.entries, [&](std::int64_t i, auto /*one*/) {
    if (op.indices[i] >= 0) op.out[op.indices[i]] += op.values[i];
  });
}

__global__ void settle_kernel(const SettleErrors op) {
  const bool skipped = isnan(*op.gradient_scale);
  const float* from = skipped ? op.settled : op.error;
  float* to = skipped ? op.error : op.settled;
  for_each_pack<1>(op.count, [&](std::int64_t i, auto /*one*/) { to[i] = from[i]; });
}

}  // namespace

void enqueue(const Context& context, const QuantizeInt8& op) {
  require_invariant(op.block > 0, "a block has elements");
  const std::int64_t blocks = ceil_div(op.count, op.block);
  launch(context,
         {.grid = dim3(static_cast<unsigned>(ceil_div(blocks, kWarps))), .block = dim3(kThreads)},
         quantize_kernel, op);
}

void enqueue(const Context& context, const DequantizeInt8& op) {
  require_invariant(op.block > 0, "a block has elements");
  launch(context, flat_shape(context, op.count, 1), dequantize_kernel, op);
}

void enqueue(const Context& context, const TopKSelect& op) {
  require_invariant(
      op.block > 0 && op.block <= kMaxSelectBlock && op.keep > 0 && op.keep <= op.block,
      "1 <= keep <= block <= 4096");
  require_invariant(op.count < std::int64_t{1} << 31, "indices fit 32 bits");
  launch(context,
         {.grid = dim3(static_cast<unsigned>(ceil_div(op.count, op.block))),
          .block = dim3(kThreads),
          .shared_bytes = static_cast<std::size_t>(op.block) * sizeof(unsigned)},
         select_kernel, op);
}

void enqueue(const Context& context, const TopKScatterAdd& op) {
  launch(context, flat_shape(context, op.entries, 1), scatter_kernel, op);
}

void enqueue(const Context& context, const SettleErrors& op) {
  launch(context, flat_shape(context, op.count, 1), settle_kernel, op);
}

}  // namespace meshplan::kernels::cuda
