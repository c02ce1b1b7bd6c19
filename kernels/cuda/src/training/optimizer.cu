#include "device/flat.cuh"
#include "device/reduce.cuh"
#include "kernels/training/optimizer.hpp"
#include "training/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kWidth = 4;                   // 16 bytes of fp32, of which Adam reads four at once
constexpr std::int64_t kNormBlock = 16384;  // elements of one fp64 partial sum of SquaredNorm
constexpr int kSumThreads = 1024;

__device__ double power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2 == 1) result *= base;
  return result;
}

/// What depends on the step: worked out once a block, since the step may lie in device memory.
struct AdamRates {
  float step_size;
  float inv_sqrt_correction2;
  float decay;  // of the decoupled kind
};

__device__ AdamRates rates_of(const AdamStep& op) {
  const std::int64_t step = op.step_at != nullptr ? *op.step_at : op.step;
  const float learning_rate =
      op.learning_rate_at != nullptr ? *op.learning_rate_at : op.learning_rate;
  const double correction1 = 1.0 - power(double{op.beta1}, step);
  const double correction2 = 1.0 - power(double{op.beta2}, step);
  return {static_cast<float>(double{learning_rate} / correction1),
          static_cast<float>(1.0 / sqrt(correction2)),
          op.decoupled ? learning_rate * op.weight_decay : 0.0F};
}

template <class W, int width>
__global__ void adam_kernel(const AdamStep op) {
  AdamRates& rates = block_shared<AdamRates>();
  if (threadIdx.x == 0) rates = rates_of(op);
  __syncthreads();
  const float gradient_scale = op.gradient_scale != nullptr ? *op.gradient_scale : 1.0F;
  if (op.skips_nan_scale && isnan(gradient_scale)) return;
  const float l2 = op.decoupled ? 0.0F : op.weight_decay;
  for_each_pack<width>(op.count, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto master = load_pack<kN>(op.master + i);
    auto m = load_pack<kN>(op.m + i);
    auto v = load_pack<kN>(op.v + i);
    const auto gradient = load_pack<kN>(op.gradient + i);
    for (int j = 0; j < kN; ++j) {
      const float g = gradient[j] * gradient_scale + master[j] * l2;
      m[j] = m[j] * op.beta1 + g * (1.0F - op.beta1);
      v[j] = v[j] * op.beta2 + g * g * (1.0F - op.beta2);
      const float denominator = sqrtf(v[j]) * rates.inv_sqrt_correction2 + op.epsilon;
      master[j] = master[j] - master[j] * rates.decay - m[j] * rates.step_size / denominator;
    }
    store_pack(op.m + i, m);
    store_pack(op.v + i, v);
    store_pack(op.master + i, master);
    if (op.weight != nullptr) store_pack(static_cast<W*>(op.weight) + i, master);
  });
}

template <class W, int width>
__global__ void sgd_kernel(const SgdStep op) {
  const float gradient_scale = op.gradient_scale != nullptr ? *op.gradient_scale : 1.0F;
  if (op.skips_nan_scale && isnan(gradient_scale)) return;
  const float learning_rate =
      op.learning_rate_at != nullptr ? *op.learning_rate_at : op.learning_rate;
  for_each_pack<width>(op.count, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto master = load_pack<kN>(op.master + i);
    auto g = load_pack<kN>(op.gradient + i);
    for (int j = 0; j < kN; ++j) g[j] = g[j] * gradient_scale + master[j] * op.weight_decay;
    if (op.velocity != nullptr) {
      auto velocity = load_pack<kN>(op.velocity + i);
      for (int j = 0; j < kN; ++j) {
        velocity[j] = velocity[j] * op.momentum + g[j];
        g[j] = op.nesterov ? g[j] + velocity[j] * op.momentum : velocity[j];
      }
      store_pack(op.velocity + i, velocity);
    }
    for (int j = 0; j < kN; ++j) master[j] -= g[j] * learning_rate;
    store_pack(op.master + i, master);
    if (op.weight != nullptr) store_pack(static_cast<W*>(op.weight) + i, master);
  });
}

/// sums[block] = the sum of squares of the block's 16,384 elements.
template <int width>
__global__ void squares_kernel(const float* x, std::int64_t count, double* sums) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kNormBlock;
  const std::int64_t end = first + kNormBlock < count ? first + kNormBlock : count;
  double sum = 0.0;
  for (std::int64_t i = first + threadIdx.x * width; i < end; i += kFlatThreads * width) {
    if (i + width <= end) {
      const auto value = load_pack<width>(x + i);
      for (int j = 0; j < width; ++j) sum += double{value[j]} * double{value[j]};
    } else {
      for (std::int64_t k = i; k < end; ++k) sum += double{x[k]} * double{x[k]};
    }
  }
  sum = group_reduce<kFlatThreads>(sum, Sum());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/// One block; thread i takes sums i, i + 1024, ...
__global__ void total_kernel(const double* sums, std::int64_t num_sums, double* total,
                             bool accumulate) {
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < num_sums; i += kSumThreads) sum += sums[i];
  sum = group_reduce<kSumThreads>(sum, Sum());
  if (threadIdx.x == 0) *total = (accumulate ? *total : 0.0) + sum;
}

__global__ void clip_kernel(const ClipCoefficient op) {
  const double wanted = op.wanted_scale != nullptr ? *op.wanted_scale : 1.0;
  const double undo = op.applied_scale != nullptr ? wanted / double{*op.applied_scale} : 1.0;
  const double norm = sqrt(*op.sum_of_squares) * undo;
  if (op.norm != nullptr) *op.norm = static_cast<float>(norm);
  const double clip = double{op.max_norm} / (norm + 1e-6);
  *op.coefficient = isfinite(norm) ? static_cast<float>((clip < 1.0 ? clip : 1.0) * undo) : NAN;
}

}  // namespace

void enqueue(const Context& context, const AdamStep& op) {
  require_invariant(op.step >= 1, "Adam's step counts from 1");
  with_float_type(op.weight_dtype, [&](auto type) {
    using W = typename decltype(type)::type;
    const bool aligned = allows_packs(
        kWidth, {{op.master}, {op.m}, {op.v}, {op.gradient}, {op.weight, 0, sizeof(W)}});
    with_pack_width<kWidth>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, flat_shape(context, op.count, kN), adam_kernel<W, kN>, op);
    });
  });
}

void enqueue(const Context& context, const SgdStep& op) {
  with_float_type(op.weight_dtype, [&](auto type) {
    using W = typename decltype(type)::type;
    const bool aligned = allows_packs(
        kWidth, {{op.master}, {op.velocity}, {op.gradient}, {op.weight, 0, sizeof(W)}});
    with_pack_width<kWidth>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, flat_shape(context, op.count, kN), sgd_kernel<W, kN>, op);
    });
  });
}

std::int64_t scratch_bytes(const SquaredNorm& op) {
  return ceil_div(op.count, kNormBlock) * size_of(DType::F64);
}

void enqueue(const Context& context, const SquaredNorm& op) {
  require_scratch(context, scratch_bytes(op));
  auto* sums = reinterpret_cast<double*>(context.scratch.data());
  const std::int64_t num_sums = ceil_div(op.count, kNormBlock);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(num_sums)),
                          .block = dim3(kFlatThreads)};
  with_pack_width<kWidth>(allows_packs(kWidth, {{op.x}}), [&](auto width) {
    launch(context, shape, squares_kernel<decltype(width)::value>, op.x, op.count, sums);
  });
  launch(context, {.grid = dim3(1), .block = dim3(kSumThreads)}, total_kernel, sums, num_sums,
         op.sum, op.accumulate);
}

void enqueue(const Context& context, const ClipCoefficient& op) {
  launch(context, {.grid = dim3(1), .block = dim3(1)}, clip_kernel, op);
}

}  // namespace meshplan::kernels::cuda
