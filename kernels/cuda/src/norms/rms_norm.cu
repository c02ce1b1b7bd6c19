#include "device/largest.cuh"
#include "device/reduce.cuh"
#include "kernels/norms/rms_norm.hpp"
#include "norms/held_rows.cuh"
#include "norms/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

/// inv_rms of a row, from what each thread has of its squares; kept for the backward pass.
template <class Group, int kThreads>
__device__ float inverse_rms(const RmsNormForward& op, std::int64_t t, float squares) {
  const float mean_square = group_reduce<kThreads>(squares, Sum()) / static_cast<float>(op.size);
  const float inv_rms = 1.0F / sqrtf(mean_square + op.epsilon);
  if (Group::thread() == 0) op.inv_rms[t] = inv_rms;
  return inv_rms;
}

template <class Row>
__global__ void held_forward_kernel(const RmsNormForward op) {
  using T = typename Row::Element;
  constexpr int kN = Row::kWidth;
  const std::int64_t t = std::int64_t{blockIdx.x} * Row::kRowsPerBlock + Row::group();
  if (t >= op.tokens) return;
  const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
  const T* residual = row_or_null<const T>(op.residual, t, op.x_stride);
  T* sum = row_or_null<T>(op.sum, t, op.x_stride);
  const T* weight = static_cast<const T*>(op.weight);
  T* y = static_cast<T*>(op.y) + t * op.y_stride;
  Pack<kN> value[Row::kPacks];
  float squares = 0.0F;
  for_each_held<Row>(op.size, [&](int p, std::int64_t i) {
    value[p] = load_pack<kN>(x + i);
    if (residual != nullptr) value[p] = add_and_keep(value[p], residual + i, sum + i);
    for (int j = 0; j < kN; ++j) squares += value[p][j] * value[p][j];
  });
  const float inv_rms = inverse_rms<Row, Row::kThreads>(op, t, squares);
  float largest = 0.0F;
  for_each_held<Row>(op.size, [&](int p, std::int64_t i) {
    const auto w = load_pack<kN>(weight + i);
    for (int j = 0; j < kN; ++j) value[p][j] = value[p][j] * inv_rms * w[j];
    store_pack(y + i, value[p]);
    largest = larger(largest, value[p]);
  });
  keep_largest<T, Row::kThreads>(op.largest, largest);
}

/// Any row: what it reads a second time comes from L1.
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
    if (residual != nullptr) value = add_and_keep(value, residual + i, sum + i);
    for (int j = 0; j < kN; ++j) squares += value[j] * value[j];
  });
  const float inv_rms = inverse_rms<Group, kThreads>(op, t, squares);
  if (residual != nullptr) x = sum;
  float largest = 0.0F;
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(x + i);
    const auto w = load_pack<kN>(weight + i);
    for (int j = 0; j < kN; ++j) value[j] = value[j] * inv_rms * w[j];
    store_pack(y + i, value);
    largest = larger(largest, value);
  });
  keep_largest<T, kThreads>(op.largest, largest);
}

/// Operands of a row's gradient.
template <class T>
struct GradientRow {
  const T* dy;
  const T* x;
  const T* weight;
  const T* residual;  // null = none
  T* dx;              // null = not wanted
  float inv_rms;
  __device__ GradientRow(const RmsNormBackward& op, std::int64_t t)
      : dy(static_cast<const T*>(op.dy) + t * op.dy_stride),
        x(static_cast<const T*>(op.x) + t * op.x_stride),
        weight(static_cast<const T*>(op.weight)),
        residual(row_or_null<const T>(op.residual, t, op.dx_stride)),
        dx(row_or_null<T>(op.dx, t, op.dx_stride)),
        inv_rms(op.inv_rms[t]) {}
  /// mean(g n) inv_rms^2, so that dx = inv_rms g - x factor.
  __device__ float factor(float mean_product) const {
    return mean_product * inv_rms * inv_rms * inv_rms;
  }
};

/// A range of rows, each read once; the sums of dweight stay in registers. `partials` is null when
/// there is no dweight.
template <class Row>
__global__ void __launch_bounds__(kRowThreads, Row::kBlocksPerSm)
    held_backward_kernel(const RmsNormBackward op, std::int64_t rows_per_block, float* partials,
                         unsigned* tickets) {
  using T = typename Row::Element;
  constexpr int kN = Row::kWidth;
  Pack<kN> sums[1][Row::kPacks] = {};
  const std::int64_t first = std::int64_t{blockIdx.x} * rows_per_block;
  const std::int64_t end = first + rows_per_block < op.tokens ? first + rows_per_block : op.tokens;
  float largest = 0.0F;
  const auto row_at = [&](std::int64_t t) { return GradientRow<T>(op, t); };
  const auto add_row = [&](const GradientRow<T>& row, const HeldOperands<Row>& held) {
    float products = 0.0F;
    if (row.dx != nullptr) {
      for_each_held<Row>(op.size, [&](int p, std::int64_t i) {
        const auto grad = unpack<T>(held.dy[p]);
        const auto value = unpack<T>(held.x[p]);
        const auto w = load_pack<kN>(row.weight + i);
        for (int j = 0; j < kN; ++j) products += grad[j] * w[j] * value[j];
      });
      products = group_reduce<Row::kThreads>(products, Sum());
    }
    const float factor = row.factor(products / static_cast<float>(op.size));
    for_each_held<Row>(op.size, [&](int p, std::int64_t i) {
      const auto grad = unpack<T>(held.dy[p]);
      const auto value = unpack<T>(held.x[p]);
      for (int j = 0; j < kN; ++j) sums[0][p][j] += grad[j] * (value[j] * row.inv_rms);
      if (row.dx == nullptr) return;
      const auto w = load_pack<kN>(row.weight + i);
      Pack<kN> dx{};
      if (row.residual != nullptr) dx = unpack<T>(held.residual[p]);
      for (int j = 0; j < kN; ++j) dx[j] += grad[j] * w[j] * row.inv_rms - value[j] * factor;
      store_pack(row.dx + i, dx);
      largest = larger(largest, dx);
    });
  };
  for_each_held_row<Row>(first + Row::group(), end, op.size, row_at, add_row);
  keep_largest<T, Row::kThreads>(op.largest, largest);
  if (partials == nullptr) return;
  leave_partials<Row, 1>(sums, op.size, partials);
  sum_over_blocks<4>(partials, op.size, tickets,
                     {.first = op.dweight, .split = op.size, .accumulate = op.accumulate});
}

/// One row of dx; adds the row's dweight to `column_sums` unless null. The columns of a thread are
/// its own, so the sums need no barrier. @returns the thread's largest |dx|
template <class T, int kThreads, int width>
__device__ float backward_row(const RmsNormBackward& op, std::int64_t t, float* column_sums) {
  using Group = RowGroup<kThreads>;
  float largest = 0.0F;
  const GradientRow<T> row(op, t);
  float products = 0.0F;
  if (row.dx != nullptr) {
    for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
      constexpr int kN = decltype(n)::value;
      const auto grad = load_pack<kN>(row.dy + i);
      const auto value = load_pack<kN>(row.x + i);
      const auto w = load_pack<kN>(row.weight + i);
      for (int j = 0; j < kN; ++j) products += grad[j] * w[j] * value[j];
    });
    products = group_reduce<kThreads>(products, Sum());
  }
  const float factor = row.factor(products / static_cast<float>(op.size));
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    const auto grad = load_pack<kN>(row.dy + i);
    const auto value = load_pack<kN>(row.x + i);
    if (column_sums != nullptr)
      for (int j = 0; j < kN; ++j) column_sums[i + j] += grad[j] * (value[j] * row.inv_rms);
    if (row.dx == nullptr) return;
    const auto w = load_pack<kN>(row.weight + i);
    Pack<kN> dx{};
    if (row.residual != nullptr) dx = load_pack<kN>(row.residual + i);
    for (int j = 0; j < kN; ++j) dx[j] += grad[j] * w[j] * row.inv_rms - value[j] * factor;
    store_pack(row.dx + i, dx);
    largest = larger(largest, dx);
  });
  return largest;
}

/// Any row. Shared: a row of fp32 for every group of threads.
template <class T, int kThreads, int width>
__global__ void backward_kernel(const RmsNormBackward op, std::int64_t rows_per_block,
                                float* partials, unsigned* tickets) {
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
  float largest = 0.0F;
  for (std::int64_t t = first + Group::group(); t < end; t += Group::kRowsPerBlock)
    largest = fmaxf(largest, backward_row<T, kThreads, width>(op, t, column_sums));
  keep_largest<T, kThreads>(op.largest, largest);
  if (partials == nullptr) return;
  add_up_groups<Group>(all_sums, op.size, partials + std::int64_t{blockIdx.x} * op.size);
  sum_over_blocks<1>(partials, op.size, tickets,
                     {.first = op.dweight, .split = op.size, .accumulate = op.accumulate});
}

template <class T>
bool is_aligned(const RmsNormForward& op) {
  const std::int64_t bytes = sizeof(T);
  return allows_packs(kPackWidth<T>, {{op.x, op.x_stride, bytes},
                                      {op.residual, op.x_stride, bytes},
                                      {op.sum, op.x_stride, bytes},
                                      {op.weight, 0, bytes},
                                      {op.y, op.y_stride, bytes}});
}

RowRanges ranges_of(const RmsNormBackward& op) {
  return norm_ranges(op.tokens, op.size);
}

}  // namespace

void enqueue(const Context& context, const RmsNormForward& op) {
  clear_largest(context, op.largest);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto shape_of = [&](int rows_per_block) {
      return LaunchShape{.grid = dim3(static_cast<unsigned>(ceil_div(op.tokens, rows_per_block))),
                         .block = dim3(kRowThreads)};
    };
    with_row_kernel<T>(
        op.size, is_aligned<T>(op),
        [&](auto row) {
          using Row = decltype(row);
          launch(context, shape_of(Row::kRowsPerBlock), held_forward_kernel<Row>, op);
        },
        [&](auto threads, auto width) {
          constexpr int kThreads = decltype(threads)::value;
          launch(context, shape_of(RowGroup<kThreads>::kRowsPerBlock),
                 forward_kernel<T, kThreads, decltype(width)::value>, op);
        });
  });
}

std::int64_t scratch_bytes(const RmsNormBackward& op) {
  if (op.dweight == nullptr) return 0;
  return ranges_of(op).num_blocks * op.size * size_of(DType::F32);
}

void enqueue(const Context& context, const RmsNormBackward& op) {
  clear_largest(context, op.largest);
  require_scratch(context, scratch_bytes(op));
  auto* partials =
      op.dweight != nullptr ? reinterpret_cast<float*>(context.scratch.data()) : nullptr;
  if (op.tokens == 0 && partials != nullptr)
    enqueue_sum_partials(context, partials, 0, op.size, op.size, op.dweight, op.accumulate);
  const RowRanges ranges = ranges_of(op);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    LaunchShape shape{.grid = dim3(static_cast<unsigned>(ranges.num_blocks)),
                      .block = dim3(kRowThreads)};
    with_row_kernel<T>(
        op.size, gradient_allows_packs<T>(op),
        [&](auto row) {
          using Row = decltype(row);
          shape.shared_bytes = partials != nullptr ? shared_for_held<Row>(op.size) : 0;
          launch(context, shape, held_backward_kernel<Row>, op, ranges.rows_per_block, partials,
                 context.tickets);
        },
        [&](auto threads, auto width) {
          constexpr int kThreads = decltype(threads)::value;
          const std::int64_t sums = RowGroup<kThreads>::kRowsPerBlock * op.size;
          shape.shared_bytes = partials != nullptr ? shared_for_sums(context, sums) : 0;
          launch(context, shape, backward_kernel<T, kThreads, decltype(width)::value>, op,
                 ranges.rows_per_block, partials, context.tickets);
        });
  });
}

}  // namespace meshplan::kernels::cuda
