#include "column_sums.cuh"
#include "kernels/rms_norm.hpp"
#include "operators.hpp"
#include "reduce.cuh"

namespace meshplan::kernels::cuda {

namespace {

template <class T, int kThreads, int width>
__global__ void forward_kernel(const RmsNormForward op) {
  using Group = RowGroup<kThreads>;
  const std::int64_t t = std::int64_t{blockIdx.x} * Group::kRowsPerBlock + Group::group();
  if (t >= op.tokens) return;
  const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
  const T* residual = row_or_null<const T>(op.residual, t, op.x_stride);
  T* sum = row_or_null<T>(op.sum, t, op.x_stride);
  const T* weight = static_cast<const T*>(op.weight);
  T* y = static_cast<T*>(op.y) + t * op.y_stride;
  float squares = 0.0F;
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(x + i);
    if (op.residual != nullptr) value = add_and_keep(value, residual + i, sum + i);
    for (int j = 0; j < kN; ++j) squares += value[j] * value[j];
  });
  const float mean_square = group_reduce<kThreads>(squares, Sum()) / static_cast<float>(op.size);
  const float inv_rms = 1.0F / sqrtf(mean_square + op.epsilon);
  if (Group::thread() == 0) op.inv_rms[t] = inv_rms;
  // The row comes from L1 this time.
  if (op.residual != nullptr) x = sum;
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(x + i);
    const auto w = load_pack<kN>(weight + i);
    for (int j = 0; j < kN; ++j) value[j] = value[j] * inv_rms * w[j];
    store_pack(y + i, value);
  });
}

/// One row of dx; adds the row's dweight to `column_sums` unless null. The columns of a thread are
/// its own, so the sums need no barrier.
template <class T, int kThreads, int width>
__device__ void backward_row(const RmsNormBackward& op, std::int64_t t, float* column_sums) {
  using Group = RowGroup<kThreads>;
  const T* dy = static_cast<const T*>(op.dy) + t * op.dy_stride;
  const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
  const T* weight = static_cast<const T*>(op.weight);
  const float inv_rms = op.inv_rms[t];
  float factor = 0.0F;  // mean(g n) inv_rms^2, so that dx = inv_rms g - x factor
  if (op.dx != nullptr) {
    float products = 0.0F;
    for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
      constexpr int kN = decltype(n)::value;
      const auto grad = load_pack<kN>(dy + i);
      const auto value = load_pack<kN>(x + i);
      const auto w = load_pack<kN>(weight + i);
      for (int j = 0; j < kN; ++j) products += grad[j] * w[j] * value[j];
    });
    factor = group_reduce<kThreads>(products, Sum()) / static_cast<float>(op.size) * inv_rms *
             inv_rms * inv_rms;
  }
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    const auto grad = load_pack<kN>(dy + i);
    const auto value = load_pack<kN>(x + i);
    if (column_sums != nullptr)
      for (int j = 0; j < kN; ++j) column_sums[i + j] += grad[j] * (value[j] * inv_rms);
    if (op.dx == nullptr) return;
    const auto w = load_pack<kN>(weight + i);
    Pack<kN> dx{};
    if (op.residual != nullptr)
      dx = load_pack<kN>(static_cast<const T*>(op.residual) + t * op.dx_stride + i);
    for (int j = 0; j < kN; ++j) dx[j] += grad[j] * w[j] * inv_rms - value[j] * factor;
    store_pack(static_cast<T*>(op.dx) + t * op.dx_stride + i, dx);
  });
}

/// A range of rows; `partials` is null when there is no dweight. Shared: a row of fp32 for every
/// group of threads.
template <class T, int kThreads, int width>
__global__ void backward_kernel(const RmsNormBackward op, std::int64_t rows_per_block,
                                float* partials) {
  using Group = RowGroup<kThreads>;
  float* all_sums = dynamic_shared<float>();
  float* column_sums = nullptr;
  if (partials != nullptr) {
    column_sums = all_sums + Group::group() * op.size;
    for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
      for (int j = 0; j < decltype(n)::value; ++j) column_sums[i + j] = 0.0F;
    });
  }
  const std::int64_t first = std::int64_t{blockIdx.x} * rows_per_block;
  const std::int64_t end = first + rows_per_block < op.tokens ? first + rows_per_block : op.tokens;
  for (std::int64_t t = first + Group::group(); t < end; t += Group::kRowsPerBlock)
    backward_row<T, kThreads, width>(op, t, column_sums);
  if (partials == nullptr) return;
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < op.size; i += blockDim.x) {
    float sum = 0.0F;
    for (int group = 0; group < Group::kRowsPerBlock; ++group) sum += all_sums[group * op.size + i];
    partials[std::int64_t{blockIdx.x} * op.size + i] = sum;
  }
}

RowRanges ranges_of(const RmsNormBackward& op) {
  return norm_ranges(op.tokens, op.size);
}

}  // namespace

void enqueue(const Context& context, const RmsNormForward& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const std::int64_t bytes = sizeof(T);
    const bool aligned = allows_packs(kPackWidth<T>, {{op.x, op.x_stride, bytes},
                                                      {op.residual, op.x_stride, bytes},
                                                      {op.sum, op.x_stride, bytes},
                                                      {op.weight, 0, bytes},
                                                      {op.y, op.y_stride, bytes}});
    with_pack_width<kPackWidth<T>>(aligned, [&](auto width) {
      with_row_group(op.size, [&](auto threads) {
        constexpr int kThreads = decltype(threads)::value;
        constexpr int kRows = RowGroup<kThreads>::kRowsPerBlock;
        const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(op.tokens, kRows))),
                                .block = dim3(kRowThreads)};
        launch(context, shape, forward_kernel<T, kThreads, decltype(width)::value>, op);
      });
    });
  });
}

std::int64_t scratch_bytes(const RmsNormBackward& op) {
  if (op.dweight == nullptr) return 0;
  return ranges_of(op).num_blocks * op.size * size_of(DType::F32);
}

void enqueue(const Context& context, const RmsNormBackward& op) {
  require_scratch(context, scratch_bytes(op));
  auto* partials =
      op.dweight != nullptr ? reinterpret_cast<float*>(context.scratch.data()) : nullptr;
  const RowRanges ranges = ranges_of(op);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const std::int64_t bytes = sizeof(T);
    const bool aligned = allows_packs(kPackWidth<T>, {{op.dy, op.dy_stride, bytes},
                                                      {op.x, op.x_stride, bytes},
                                                      {op.weight, 0, bytes},
                                                      {op.dx, op.dx_stride, bytes},
                                                      {op.residual, op.dx_stride, bytes}});
    with_pack_width<kPackWidth<T>>(aligned, [&](auto width) {
      with_row_group(op.size, [&](auto threads) {
        constexpr int kThreads = decltype(threads)::value;
        const std::int64_t sums = RowGroup<kThreads>::kRowsPerBlock * op.size;
        const LaunchShape shape{
            .grid = dim3(static_cast<unsigned>(ranges.num_blocks)),
            .block = dim3(kRowThreads),
            .shared_bytes = partials != nullptr ? shared_for_sums(context, sums) : 0};
        launch(context, shape, backward_kernel<T, kThreads, decltype(width)::value>, op,
               ranges.rows_per_block, partials);
      });
    });
  });
  if (op.dweight != nullptr)
    enqueue_sum_partials(context, partials, ranges.num_blocks, op.size, op.size, op.dweight,
                         op.accumulate);
}

}  // namespace meshplan::kernels::cuda
