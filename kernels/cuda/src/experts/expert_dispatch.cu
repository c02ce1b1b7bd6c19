#include "device/reduce.cuh"
#include "device/rows.cuh"
#include "device/stable_sort.hpp"
#include "experts/operators.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/experts/expert_dispatch.hpp"

namespace meshplan::kernels::cuda {

namespace {

/// Dropped choices (-1) are sorted behind those of all experts.
__global__ void keys_kernel(const DispatchPlan op, std::int32_t* keys) {
  const std::int64_t choice = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (choice >= op.tokens * op.top_k) return;
  keys[choice] = op.choices[choice] < 0 ? op.experts : op.choices[choice];
}

/// Copies the order out of the sort's scratch, inverts it, and finds where each expert begins.
__global__ void plan_kernel(const DispatchPlan op, const SortedItems sorted) {
  const std::int64_t count = op.tokens * op.top_k;
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row > count) return;
  // Experts after the previous row's, up to this row's, begin here; the end closes the rest.
  const int previous = row == 0 ? -1 : sorted.keys[row - 1];
  const int own = row == count ? op.experts : sorted.keys[row];
  for (int x = previous + 1; x <= own; ++x) op.offsets[x] = static_cast<std::int32_t>(row);
  if (row == count) return;
  const std::int32_t choice = sorted.items[row];
  const bool dropped = own == op.experts;
  op.choice_of_row[row] = dropped ? -1 : choice;
  op.row_of_choice[choice] = dropped ? -1 : static_cast<std::int32_t>(row);
}

template <class T, int width>
__global__ void dispatch_kernel(const DispatchForward op) {
  const std::int64_t row = blockIdx.x;
  if (op.choice_of_row[row] < 0) return;
  const std::int64_t t = op.choice_of_row[row] / op.top_k;
  for_each_tile_pack<width>(op.size, [&](std::int64_t i, auto n) {
    store_pack(static_cast<T*>(op.rows) + row * op.rows_stride + i,
               load_pack<decltype(n)::value>(static_cast<const T*>(op.x) + t * op.x_stride + i));
  });
}

/// y[t] = sum of the token's rows, each times its probability; null probabilities are 1.
template <class T, int width>
__global__ void sum_rows_kernel(const CombineForward op) {
  const std::int64_t t = blockIdx.x;
  for_each_tile_pack<width>(op.size, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    Pack<kN> sum{};
    for (int k = 0; k < op.top_k; ++k) {
      const std::int64_t choice = t * op.top_k + k;
      const std::int64_t row = op.row_of_choice[choice];
      if (row < 0) continue;
      const float factor = op.probabilities != nullptr ? op.probabilities[choice] : 1.0F;
      const auto part = load_pack<kN>(static_cast<const T*>(op.rows) + row * op.rows_stride + i);
      for (int j = 0; j < kN; ++j) sum[j] += factor * part[j];
    }
    store_pack(static_cast<T*>(op.y) + t * op.y_stride + i, sum);
  });
}

/// A block for each choice.
template <class T, int width>
__global__ void combine_backward_kernel(const CombineBackward op) {
  const std::int64_t choice = blockIdx.x;
  const std::int64_t row = op.row_of_choice[choice];
  if (row < 0) {
    if (threadIdx.x == 0) op.dprobabilities[choice] = 0.0F;
    return;
  }
  const float probability = op.probabilities[choice];
  const T* dy = static_cast<const T*>(op.dy) + choice / op.top_k * op.dy_stride;
  const T* own = static_cast<const T*>(op.rows) + row * op.rows_stride;
  T* drow = static_cast<T*>(op.drows) + row * op.rows_stride;
  float product = 0.0F;
  for_each_column_pack<width>(op.size, threadIdx.x, kRowThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto grad = load_pack<kN>(dy + i);
    const auto value = load_pack<kN>(own + i);
    for (int j = 0; j < kN; ++j) {
      product += grad[j] * value[j];
      grad[j] *= probability;
    }
    store_pack(drow + i, grad);
  });
  product = group_reduce<kRowThreads>(product, Sum());
  if (threadIdx.x == 0) op.dprobabilities[choice] = product;
}

}  // namespace

std::int64_t scratch_bytes(const DispatchPlan& op) {
  return sort_scratch_bytes(op.tokens * op.top_k);
}

void enqueue(const Context& context, const DispatchPlan& op) {
  require_scratch(context, scratch_bytes(op));
  const std::int64_t count = op.tokens * op.top_k;
  const LaunchShape by_choice{.grid = dim3(static_cast<unsigned>(ceil_div(count, kRowThreads))),
                              .block = dim3(kRowThreads)};
  launch(context, by_choice, keys_kernel, op, sort_keys(context.scratch.data()));
  const SortedItems sorted =
      enqueue_stable_sort(context, count, op.experts + 1, context.scratch.data());
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(count + 1, kRowThreads))),
                          .block = dim3(kRowThreads)};
  launch(context, shape, plan_kernel, op, sorted);
}

void enqueue(const Context& context, const DispatchForward& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned =
        allows_packs(kWide, {{op.x, op.x_stride, sizeof(T)}, {op.rows, op.rows_stride, sizeof(T)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, tile_shape(op.tokens * op.top_k, op.size, kN), dispatch_kernel<T, kN>, op);
    });
  });
}

void enqueue(const Context& context, const DispatchBackward& op) {
  enqueue(context, CombineForward{.tokens = op.tokens,
                                  .top_k = op.top_k,
                                  .size = op.size,
                                  .dtype = op.dtype,
                                  .row_of_choice = op.row_of_choice,
                                  .probabilities = nullptr,
                                  .rows = op.drows,
                                  .rows_stride = op.drows_stride,
                                  .y = op.dx,
                                  .y_stride = op.dx_stride});
}

void enqueue(const Context& context, const CombineForward& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned =
        allows_packs(kWide, {{op.rows, op.rows_stride, sizeof(T)}, {op.y, op.y_stride, sizeof(T)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, tile_shape(op.tokens, op.size, kN), sum_rows_kernel<T, kN>, op);
    });
  });
}

void enqueue(const Context& context, const CombineBackward& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned = allows_packs(kWide, {{op.rows, op.rows_stride, sizeof(T)},
                                              {op.drows, op.rows_stride, sizeof(T)},
                                              {op.dy, op.dy_stride, sizeof(T)}});
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(op.tokens * op.top_k)),
                            .block = dim3(kRowThreads)};
    with_pack_width<kWide>(aligned, [&](auto width) {
      launch(context, shape, combine_backward_kernel<T, decltype(width)::value>, op);
    });
  });
}

}  // namespace meshplan::kernels::cuda
