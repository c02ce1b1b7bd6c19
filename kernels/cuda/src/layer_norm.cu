#include "column_sums.cuh"
#include "kernels/layer_norm.hpp"
#include "operators.hpp"
#include "reduce.cuh"

namespace meshplan::kernels::cuda {

namespace {

template <class T, int kThreads, int width>
__global__ void forward_kernel(const LayerNormForward op) {
  using Group = RowGroup<kThreads>;
  const std::int64_t t = std::int64_t{blockIdx.x} * Group::kRowsPerBlock + Group::group();
  if (t >= op.tokens) return;
  const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
  const T* residual = row_or_null<const T>(op.residual, t, op.x_stride);
  T* sum = row_or_null<T>(op.sum, t, op.x_stride);
  const T* weight = static_cast<const T*>(op.weight);
  const T* bias = static_cast<const T*>(op.bias);
  T* y = static_cast<T*>(op.y) + t * op.y_stride;
  const float inv_size = 1.0F / static_cast<float>(op.size);
  float total = 0.0F;
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(x + i);
    if (op.residual != nullptr) value = add_and_keep(value, residual + i, sum + i);
    for (int j = 0; j < kN; ++j) total += value[j];
  });
  const float mean = group_reduce<kThreads>(total, Sum()) * inv_size;
  // The row comes from L1 from here on.
  if (op.residual != nullptr) x = sum;
  float squares = 0.0F;
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    const auto value = load_pack<kN>(x + i);
    for (int j = 0; j < kN; ++j) squares += (value[j] - mean) * (value[j] - mean);
  });
  const float variance = group_reduce<kThreads>(squares, Sum()) * inv_size;
  const float inv_std = 1.0F / sqrtf(variance + op.epsilon);
  if (Group::thread() == 0) {
    op.mean[t] = mean;
    op.inv_std[t] = inv_std;
  }
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(x + i);
    const auto w = load_pack<kN>(weight + i);
    Pack<kN> b{};
    if (bias != nullptr) b = load_pack<kN>(bias + i);
    for (int j = 0; j < kN; ++j) value[j] = (value[j] - mean) * inv_std * w[j] + b[j];
    store_pack(y + i, value);
  });
}

/// One row of dx; adds the row's dweight and dbias to the sums unless null. The columns of a thread
/// are its own, so the sums need no barrier.
template <class T, int kThreads, int width>
__device__ void backward_row(const LayerNormBackward& op, std::int64_t t, float* weight_sums,
                             float* bias_sums) {
  using Group = RowGroup<kThreads>;
  const T* dy = static_cast<const T*>(op.dy) + t * op.dy_stride;
  const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
  const T* weight = static_cast<const T*>(op.weight);
  const float mean = op.mean[t];
  const float inv_std = op.inv_std[t];
  float g_mean = 0.0F;
  float gn_mean = 0.0F;
  if (op.dx != nullptr) {
    float g_total = 0.0F;
    float gn_total = 0.0F;
    for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
      constexpr int kN = decltype(n)::value;
      const auto grad = load_pack<kN>(dy + i);
      const auto value = load_pack<kN>(x + i);
      const auto w = load_pack<kN>(weight + i);
      for (int j = 0; j < kN; ++j) {
        const float g = grad[j] * w[j];
        g_total += g;
        gn_total += g * (value[j] - mean);
      }
    });
    const float inv_size = 1.0F / static_cast<float>(op.size);
    g_mean = group_reduce<kThreads>(g_total, Sum()) * inv_size;
    gn_mean = group_reduce<kThreads>(gn_total, Sum()) * inv_size * inv_std;
  }
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    const auto grad = load_pack<kN>(dy + i);
    Pack<kN> normal = load_pack<kN>(x + i);
    for (int j = 0; j < kN; ++j) normal[j] = (normal[j] - mean) * inv_std;
    if (weight_sums != nullptr)
      for (int j = 0; j < kN; ++j) weight_sums[i + j] += grad[j] * normal[j];
    if (bias_sums != nullptr)
      for (int j = 0; j < kN; ++j) bias_sums[i + j] += grad[j];
    if (op.dx == nullptr) return;
    const auto w = load_pack<kN>(weight + i);
    Pack<kN> dx{};
    if (op.residual != nullptr)
      dx = load_pack<kN>(static_cast<const T*>(op.residual) + t * op.dx_stride + i);
    for (int j = 0; j < kN; ++j) dx[j] += (grad[j] * w[j] - g_mean - normal[j] * gn_mean) * inv_std;
    store_pack(static_cast<T*>(op.dx) + t * op.dx_stride + i, dx);
  });
}

/// A range of rows. `partials` (blocks, sums * D) has a row of dweight, of dbias, or of both side
/// by side; null when neither is wanted. Shared: the same for every group of threads.
template <class T, int kThreads, int width>
__global__ void backward_kernel(const LayerNormBackward op, std::int64_t rows_per_block,
                                float* partials) {
  using Group = RowGroup<kThreads>;
  const int outputs = (op.dweight != nullptr ? 1 : 0) + (op.dbias != nullptr ? 1 : 0);
  const std::int64_t row = outputs * op.size;
  float* all_sums = dynamic_shared<float>();
  float* own_sums = all_sums + Group::group() * row;
  float* weight_sums = op.dweight != nullptr ? own_sums : nullptr;
  float* bias_sums = op.dbias != nullptr ? own_sums + (outputs - 1) * op.size : nullptr;
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    for (int j = 0; j < decltype(n)::value; ++j)
      for (int output = 0; output < outputs; ++output) own_sums[output * op.size + i + j] = 0.0F;
  });
  const std::int64_t first = std::int64_t{blockIdx.x} * rows_per_block;
  const std::int64_t end = first + rows_per_block < op.tokens ? first + rows_per_block : op.tokens;
  for (std::int64_t t = first + Group::group(); t < end; t += Group::kRowsPerBlock)
    backward_row<T, kThreads, width>(op, t, weight_sums, bias_sums);
  if (partials == nullptr) return;
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < row; i += blockDim.x) {
    float sum = 0.0F;
    for (int group = 0; group < Group::kRowsPerBlock; ++group) sum += all_sums[group * row + i];
    partials[std::int64_t{blockIdx.x} * row + i] = sum;
  }
}

RowRanges ranges_of(const LayerNormBackward& op) {
  return norm_ranges(op.tokens, op.size);
}

std::int64_t partial_columns(const LayerNormBackward& op) {
  return ((op.dweight != nullptr ? 1 : 0) + (op.dbias != nullptr ? 1 : 0)) * op.size;
}

}  // namespace

void enqueue(const Context& context, const LayerNormForward& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const std::int64_t bytes = sizeof(T);
    const bool aligned = allows_packs(kPackWidth<T>, {{op.x, op.x_stride, bytes},
                                                      {op.residual, op.x_stride, bytes},
                                                      {op.sum, op.x_stride, bytes},
                                                      {op.weight, 0, bytes},
                                                      {op.bias, 0, bytes},
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

std::int64_t scratch_bytes(const LayerNormBackward& op) {
  return ranges_of(op).num_blocks * partial_columns(op) * size_of(DType::F32);
}

void enqueue(const Context& context, const LayerNormBackward& op) {
  require_scratch(context, scratch_bytes(op));
  const std::int64_t columns = partial_columns(op);
  auto* partials = columns > 0 ? reinterpret_cast<float*>(context.scratch.data()) : nullptr;
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
        const LaunchShape shape{
            .grid = dim3(static_cast<unsigned>(ranges.num_blocks)),
            .block = dim3(kRowThreads),
            .shared_bytes = shared_for_sums(context, RowGroup<kThreads>::kRowsPerBlock * columns)};
        launch(context, shape, backward_kernel<T, kThreads, decltype(width)::value>, op,
               ranges.rows_per_block, partials);
      });
    });
  });
  if (op.dweight != nullptr)
    enqueue_sum_partials(context, partials, ranges.num_blocks, columns, op.size, op.dweight,
                         op.accumulate);
  if (op.dbias != nullptr)
    enqueue_sum_partials(context, partials + (columns - op.size), ranges.num_blocks, columns,
                         op.size, op.dbias, op.accumulate);
}

}  // namespace meshplan::kernels::cuda
