#include "device/reduce.cuh"
#include "device/rows.cuh"
#include "device/soft_cap.cuh"
#include "kernels/training/cross_entropy.hpp"
#include "training/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kSumThreads = 1024;

/// sum of exp(logit - max) over the logits seen so far (Milakov & Gimelshein 2018, algorithm 3).
struct OnlineSum {
  float max;
  float sum;
};

__device__ OnlineSum nothing_seen() {
  return {-INFINITY, 0.0F};
}

struct MergeOnlineSums {
  __device__ OnlineSum operator()(const OnlineSum& a, const OnlineSum& b) const {
    const float max = fmaxf(a.max, b.max);
    if (max == -INFINITY) return {max, a.sum + b.sum};
    return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
  }
};

__device__ inline OnlineSum shuffle_xor(const OnlineSum& value, int distance) {
  return {__shfl_xor_sync(kAllLanes, value.max, distance),
          __shfl_xor_sync(kAllLanes, value.sum, distance)};
}

/// A block for each row; one pass over the logits.
template <class T, int width>
__global__ void local_kernel(const CrossEntropyLocal op) {
  const std::int64_t t = blockIdx.x;
  const T* row = static_cast<const T*>(op.logits) + t * op.logits_stride;
  OnlineSum seen = nothing_seen();
  for_each_column_pack<width>(op.valid, threadIdx.x, kRowThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto logit = load_pack<kN>(row + i);
    for (int j = 0; j < kN; ++j) logit[j] = soft_capped(logit[j], op.softcap);
    float max = seen.max;
    for (int j = 0; j < kN; ++j) max = fmaxf(max, logit[j]);
    if (max > seen.max) {
      seen.sum *= expf(seen.max - max);
      seen.max = max;
    }
    if (seen.max == -INFINITY) return;
    for (int j = 0; j < kN; ++j) seen.sum += expf(logit[j] - seen.max);
  });
  seen = group_reduce<kRowThreads>(seen, MergeOnlineSums());
  if (threadIdx.x != 0) return;
  const std::int64_t target = op.targets[t] - op.vocab_begin;
  const bool is_local = op.targets[t] >= 0 && target >= 0 && target < op.valid;
  float* stats = op.stats + t * kCrossEntropyStats;
  stats[0] = seen.max;
  stats[1] = seen.sum;
  stats[2] = is_local ? soft_capped(to_float(row[target]), op.softcap) : 0.0F;
}

/// In fp64, as on the CPU.
__global__ void combine_kernel(const CrossEntropyCombine op) {
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t >= op.tokens) return;
  const auto stats = [&](std::int64_t shard) {
    return op.stats + (shard * op.tokens + t) * kCrossEntropyStats;
  };
  float maximum = -INFINITY;
  for (std::int64_t s = 0; s < op.num_shards; ++s) maximum = fmaxf(maximum, stats(s)[0]);
  double sum = 0.0;
  double target_logit = 0.0;
  for (std::int64_t s = 0; s < op.num_shards; ++s) {
    sum += double{stats(s)[1]} * exp(double{stats(s)[0]} - double{maximum});
    target_logit += double{stats(s)[2]};
  }
  const double lse = double{maximum} + log(sum);
  op.lse[t] = static_cast<float>(lse);
  op.loss[t] = op.targets[t] < 0 ? 0.0F : static_cast<float>(lse - target_logit);
}

template <class T, int width>
__global__ void backward_kernel(const CrossEntropyBackward op) {
  const std::int64_t t = blockIdx.x;
  const T* row = static_cast<const T*>(op.logits) + t * op.logits_stride;
  T* out = static_cast<T*>(op.dlogits) + t * op.logits_stride;
  const bool ignored = op.targets[t] < 0;
  const std::int64_t target = op.targets[t] - op.vocab_begin;
  const float scale = *op.scale * op.weight;
  const float lse = op.lse[t];
  for_each_tile_pack<width>(op.columns, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(row + i);
    for (int j = 0; j < kN; ++j) {
      const float logit = soft_capped(value[j], op.softcap);
      const float probability = expf(logit - lse);
      const float grad = (i + j == target ? probability - 1.0F : probability) * scale *
                         soft_cap_slope(logit, op.softcap);
      value[j] = ignored || i + j >= op.valid ? 0.0F : grad;
    }
    store_pack(out + i, value);
  });
}

/// One block; thread i takes losses i, i + 1024, ...
__global__ void sum_loss_kernel(const SumLoss op) {
  double sum = 0.0;
  for (std::int64_t t = threadIdx.x; t < op.tokens; t += kSumThreads) sum += double{op.loss[t]};
  sum = group_reduce<kSumThreads>(sum, Sum());
  if (threadIdx.x == 0) *op.sum = (op.accumulate ? *op.sum : 0.0) + op.weight * sum;
}

}  // namespace

void enqueue(const Context& context, const CrossEntropyLocal& op) {
  require_invariant(op.valid <= op.columns, "valid columns are among the columns");
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned = allows_packs(kWide, {{op.logits, op.logits_stride, sizeof(T)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      const LaunchShape shape{.grid = dim3(static_cast<unsigned>(op.tokens)),
                              .block = dim3(kRowThreads)};
      launch(context, shape, local_kernel<T, decltype(width)::value>, op);
    });
  });
}

void enqueue(const Context& context, const CrossEntropyCombine& op) {
  constexpr int kThreads = 128;  // few tokens: rather more blocks
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(op.tokens, kThreads))),
                          .block = dim3(kThreads)};
  launch(context, shape, combine_kernel, op);
}

void enqueue(const Context& context, const CrossEntropyBackward& op) {
  require_invariant(op.valid <= op.columns, "valid columns are among the columns");
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned = allows_packs(kWide, {{op.logits, op.logits_stride, sizeof(T)},
                                              {op.dlogits, op.logits_stride, sizeof(T)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, tile_shape(op.tokens, op.columns, kN), backward_kernel<T, kN>, op);
    });
  });
}

void enqueue(const Context& context, const SumLoss& op) {
  launch(context, {.grid = dim3(1), .block = dim3(kSumThreads)}, sum_loss_kernel, op);
}

}  // namespace meshplan::kernels::cuda
