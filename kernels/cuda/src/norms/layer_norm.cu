#include "device/largest.cuh"
#include "device/reduce.cuh"
#include "kernels/norms/layer_norm.hpp"
#include "norms/held_rows.cuh"
#include "norms/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

/// Addresses of a row's operands.
template <class T>
struct ForwardRow {
  const T* x;
  const T* residual;  // null = none
  T* sum;
  const T* weight;
  const T* bias;  // null = none
  T* y;
  __device__ ForwardRow(const LayerNormForward& op, std::int64_t t)
      : x(static_cast<const T*>(op.x) + t * op.x_stride),
        residual(row_or_null<const T>(op.residual, t, op.x_stride)),
        sum(row_or_null<T>(op.sum, t, op.x_stride)),
        weight(static_cast<const T*>(op.weight)),
        bias(static_cast<const T*>(op.bias)),
        y(static_cast<T*>(op.y) + t * op.y_stride) {}
};

/// 1 / deviation of a row, from what each thread has of the squares around the mean.
template <int kThreads>
__device__ float inverse_deviation(const LayerNormForward& op, float squares) {
  const float variance = group_reduce<kThreads>(squares, Sum()) / static_cast<float>(op.size);
  return 1.0F / sqrtf(variance + op.epsilon);
}

template <class Row>
__global__ void held_forward_kernel(const LayerNormForward op) {
  using T = typename Row::Element;
  constexpr int kN = Row::kWidth;
  const std::int64_t t = std::int64_t{blockIdx.x} * Row::kRowsPerBlock + Row::group();
  if (t >= op.tokens) return;
  const ForwardRow<T> row(op, t);
  Pack<kN> value[Row::kPacks];
  float total = 0.0F;
  for_each_held<Row>(op.size, [&](int p, std::int64_t i) {
    value[p] = load_pack<kN>(row.x + i);
    if (row.residual != nullptr) value[p] = add_and_keep(value[p], row.residual + i, row.sum + i);
    for (int j = 0; j < kN; ++j) total += value[p][j];
  });
  const float mean = group_reduce<Row::kThreads>(total, Sum()) / static_cast<float>(op.size);
  float squares = 0.0F;
  for_each_held<Row>(op.size, [&](int p, std::int64_t /*i*/) {
    for (int j = 0; j < kN; ++j) squares += (value[p][j] - mean) * (value[p][j] - mean);
  });
  const float inv_std = inverse_deviation<Row::kThreads>(op, squares);
  if (Row::thread() == 0) {
    op.mean[t] = mean;
    op.inv_std[t] = inv_std;
  }
  float largest = 0.0F;
  for_each_held<Row>(op.size, [&](int p, std::int64_t i) {
    const auto w = load_pack<kN>(row.weight + i);
    Pack<kN> b{};
    if (row.bias != nullptr) b = load_pack<kN>(row.bias + i);
    for (int j = 0; j < kN; ++j) value[p][j] = (value[p][j] - mean) * inv_std * w[j] + b[j];
    store_pack(row.y + i, value[p]);
    largest = larger(largest, value[p]);
  });
  keep_largest<T, Row::kThreads>(op.largest, largest);
}

/// Any row: what it reads again comes from L1.
template <class T, int kThreads, int width>
__global__ void forward_kernel(const LayerNormForward op) {
  using Group = RowGroup<kThreads>;
  const std::int64_t t = std::int64_t{blockIdx.x} * Group::kRowsPerBlock + Group::group();
  if (t >= op.tokens) return;
  const ForwardRow<T> row(op, t);
  float total = 0.0F;
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(row.x + i);
    if (row.residual != nullptr) value = add_and_keep(value, row.residual + i, row.sum + i);
    for (int j = 0; j < kN; ++j) total += value[j];
  });
  const float mean = group_reduce<kThreads>(total, Sum()) / static_cast<float>(op.size);
  const T* x = row.residual != nullptr ? row.sum : row.x;
  float squares = 0.0F;
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    const auto value = load_pack<kN>(x + i);
    for (int j = 0; j < kN; ++j) squares += (value[j] - mean) * (value[j] - mean);
  });
  const float inv_std = inverse_deviation<kThreads>(op, squares);
  if (Group::thread() == 0) {
    op.mean[t] = mean;
    op.inv_std[t] = inv_std;
  }
  float largest = 0.0F;
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(x + i);
    const auto w = load_pack<kN>(row.weight + i);
    Pack<kN> b{};
    if (row.bias != nullptr) b = load_pack<kN>(row.bias + i);
    for (int j = 0; j < kN; ++j) value[j] = (value[j] - mean) * inv_std * w[j] + b[j];
    store_pack(row.y + i, value);
    largest = larger(largest, value);
  });
  keep_largest<T, kThreads>(op.largest, largest);
}

/// Operands of a row's gradient, and its formula.
template <class T>
struct GradientRow {
  const T* dy;
  const T* x;
  const T* weight;
  const T* residual;  // null = none
  T* dx;              // null = not wanted
  float mean;
  float inv_std;
  float g_mean = 0.0F;
  float gn_mean = 0.0F;
  __device__ GradientRow(const LayerNormBackward& op, std::int64_t t)
      : dy(static_cast<const T*>(op.dy) + t * op.dy_stride),
        x(static_cast<const T*>(op.x) + t * op.x_stride),
        weight(static_cast<const T*>(op.weight)),
        residual(row_or_null<const T>(op.residual, t, op.dx_stride)),
        dx(row_or_null<T>(op.dx, t, op.dx_stride)),
        mean(op.mean[t]),
        inv_std(op.inv_std[t]) {}
  /// From what each thread has of g and of g (x - mean).
  template <int kThreads>
  __device__ void set_means(float g_total, float gn_total, std::int64_t size) {
    const float inv_size = 1.0F / static_cast<float>(size);
    g_mean = group_reduce<kThreads>(g_total, Sum()) * inv_size;
    gn_mean = group_reduce<kThreads>(gn_total, Sum()) * inv_size * inv_std;
  }
  __device__ float gradient(float grad, float w, float normal) const {
    return (grad * w - g_mean - normal * gn_mean) * inv_std;
  }
};

/// A range of rows, each read once; the sums of dweight and dbias stay in registers. `partials`
/// (blocks, 2 D) has a row of each side by side; null when neither is wanted.
template <class Row>
__global__ void __launch_bounds__(kRowThreads, Row::kBlocksPerSm)
    held_backward_kernel(const LayerNormBackward op, std::int64_t rows_per_block, float* partials,
                         unsigned* tickets) {
  using T = typename Row::Element;
  constexpr int kN = Row::kWidth;
  Pack<kN> sums[2][Row::kPacks] = {};
  const std::int64_t first = std::int64_t{blockIdx.x} * rows_per_block;
  const std::int64_t end = first + rows_per_block < op.tokens ? first + rows_per_block : op.tokens;
  float largest = 0.0F;
  const auto row_at = [&](std::int64_t t) { return GradientRow<T>(op, t); };
  const auto add_row = [&](GradientRow<T>& row, const HeldOperands<Row>& held) {
    if (row.dx != nullptr) {
      float g_total = 0.0F;
      float gn_total = 0.0F;
      for_each_held<Row>(op.size, [&](int p, std::int64_t i) {
        const auto grad = unpack<T>(held.dy[p]);
        const auto value = unpack<T>(held.x[p]);
        const auto w = load_pack<kN>(row.weight + i);
        for (int j = 0; j < kN; ++j) {
          const float g = grad[j] * w[j];
          g_total += g;
          gn_total += g * (value[j] - row.mean);
        }
      });
      row.template set_means<Row::kThreads>(g_total, gn_total, op.size);
    }
    for_each_held<Row>(op.size, [&](int p, std::int64_t i) {
      const auto grad = unpack<T>(held.dy[p]);
      Pack<kN> normal = unpack<T>(held.x[p]);
      for (int j = 0; j < kN; ++j) {
        normal[j] = (normal[j] - row.mean) * row.inv_std;
        sums[0][p][j] += grad[j] * normal[j];
        sums[1][p][j] += grad[j];
      }
      if (row.dx == nullptr) return;
      const auto w = load_pack<kN>(row.weight + i);
      Pack<kN> dx{};
      if (row.residual != nullptr) dx = unpack<T>(held.residual[p]);
      for (int j = 0; j < kN; ++j) dx[j] += row.gradient(grad[j], w[j], normal[j]);
      store_pack(row.dx + i, dx);
      largest = larger(largest, dx);
    });
  };
  for_each_held_row<Row>(first + Row::group(), end, op.size, row_at, add_row);
  keep_largest<T, Row::kThreads>(op.largest, largest);
  if (partials == nullptr) return;
  leave_partials<Row, 2>(sums, op.size, partials);
  sum_over_blocks<4>(
      partials, 2 * op.size, tickets,
      {.first = op.dweight, .second = op.dbias, .split = op.size, .accumulate = op.accumulate});
}

/// One row of dx; adds the row's dweight and dbias to the sums unless null. The columns of a thread
/// are its own, so the sums need no barrier. @returns the thread's largest |dx|
template <class T, int kThreads, int width>
__device__ float backward_row(const LayerNormBackward& op, std::int64_t t, float* weight_sums,
                              float* bias_sums) {
  using Group = RowGroup<kThreads>;
  float largest = 0.0F;
  GradientRow<T> row(op, t);
  if (row.dx != nullptr) {
    float g_total = 0.0F;
    float gn_total = 0.0F;
    for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
      constexpr int kN = decltype(n)::value;
      const auto grad = load_pack<kN>(row.dy + i);
      const auto value = load_pack<kN>(row.x + i);
      const auto w = load_pack<kN>(row.weight + i);
      for (int j = 0; j < kN; ++j) {
        const float g = grad[j] * w[j];
        g_total += g;
        gn_total += g * (value[j] - row.mean);
      }
    });
    row.template set_means<kThreads>(g_total, gn_total, op.size);
  }
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    const auto grad = load_pack<kN>(row.dy + i);
    Pack<kN> normal = load_pack<kN>(row.x + i);
    for (int j = 0; j < kN; ++j) normal[j] = (normal[j] - row.mean) * row.inv_std;
    if (weight_sums != nullptr)
      for (int j = 0; j < kN; ++j) weight_sums[i + j] += grad[j] * normal[j];
    if (bias_sums != nullptr)
      for (int j = 0; j < kN; ++j) bias_sums[i + j] += grad[j];
    if (row.dx == nullptr) return;
    const auto w = load_pack<kN>(row.weight + i);
    Pack<kN> dx{};
    if (row.residual != nullptr) dx = load_pack<kN>(row.residual + i);
    for (int j = 0; j < kN; ++j) dx[j] += row.gradient(grad[j], w[j], normal[j]);
    store_pack(row.dx + i, dx);
    largest = larger(largest, dx);
  });
  return largest;
}

/// Any row. `partials` (blocks, sums * D) has a row of dweight, of dbias, or of both side by side.
/// Shared: the same for every group of threads.
template <class T, int kThreads, int width>
__global__ void backward_kernel(const LayerNormBackward op, std::int64_t rows_per_block,
                                float* partials, unsigned* tickets) {
  using Group = RowGroup<kThreads>;
  const int outputs = (op.dweight != nullptr ? 1 : 0) + (op.dbias != nullptr ? 1 : 0);
  const std::int64_t columns = outputs * op.size;
  float* all_sums = dynamic_shared<float>();
  float* own_sums = all_sums + Group::group() * columns;
  float* weight_sums = op.dweight != nullptr ? own_sums : nullptr;
  float* bias_sums = op.dbias != nullptr ? own_sums + (outputs - 1) * op.size : nullptr;
  for_each_column_pack<width>(op.size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    for (int j = 0; j < decltype(n)::value; ++j)
      for (int output = 0; output < outputs; ++output) own_sums[output * op.size + i + j] = 0.0F;
  });
  const std::int64_t first = std::int64_t{blockIdx.x} * rows_per_block;
  const std::int64_t end = first + rows_per_block < op.tokens ? first + rows_per_block : op.tokens;
  float largest = 0.0F;
  for (std::int64_t t = first + Group::group(); t < end; t += Group::kRowsPerBlock)
    largest = fmaxf(largest, backward_row<T, kThreads, width>(op, t, weight_sums, bias_sums));
  keep_largest<T, kThreads>(op.largest, largest);
  if (partials == nullptr) return;
  add_up_groups<Group>(all_sums, columns, partials + std::int64_t{blockIdx.x} * columns);
  sum_over_blocks<1>(partials, columns, tickets,
                     {.first = op.dweight != nullptr ? op.dweight : op.dbias,
                      .second = op.dbias,
                      .split = op.size,
                      .accumulate = op.accumulate});
}

template <class T>
bool is_aligned(const LayerNormForward& op) {
  const std::int64_t bytes = sizeof(T);
  return allows_packs(kPackWidth<T>, {{op.x, op.x_stride, bytes},
                                      {op.residual, op.x_stride, bytes},
                                      {op.sum, op.x_stride, bytes},
                                      {op.weight, 0, bytes},
                                      {op.bias, 0, bytes},
                                      {op.y, op.y_stride, bytes}});
}

RowRanges ranges_of(const LayerNormBackward& op) {
  return norm_ranges(op.tokens, op.size);
}

std::int64_t sum_columns(const LayerNormBackward& op) {
  return ((op.dweight != nullptr ? 1 : 0) + (op.dbias != nullptr ? 1 : 0)) * op.size;
}

}  // namespace

void enqueue(const Context& context, const LayerNormForward& op) {
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

/// Room for both sums: in registers they are kept together.
std::int64_t scratch_bytes(const LayerNormBackward& op) {
  if (sum_columns(op) == 0) return 0;
  return ranges_of(op).num_blocks * 2 * op.size * size_of(DType::F32);
}

void enqueue(const Context& context, const LayerNormBackward& op) {
  clear_largest(context, op.largest);
  require_scratch(context, scratch_bytes(op));
  const std::int64_t columns = sum_columns(op);
  auto* partials = columns > 0 ? reinterpret_cast<float*>(context.scratch.data()) : nullptr;
  if (op.tokens == 0)
    for (float* out : {op.dweight, op.dbias})
      if (out != nullptr)
        enqueue_sum_partials(context, partials, 0, op.size, op.size, out, op.accumulate);
  const RowRanges ranges = ranges_of(op);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    LaunchShape shape{.grid = dim3(static_cast<unsigned>(ranges.num_blocks)),
                      .block = dim3(kRowThreads)};
    with_row_kernel<T>(
        op.size, gradient_allows_packs<T>(op),
        [&](auto row) {
          using Row = decltype(row);
          shape.shared_bytes = partials != nullptr ? shared_for_held<Row>(2 * op.size) : 0;
          launch(context, shape, held_backward_kernel<Row>, op, ranges.rows_per_block, partials,
                 context.tickets);
        },
        [&](auto threads, auto width) {
          constexpr int kThreads = decltype(threads)::value;
          shape.shared_bytes =
              shared_for_sums(context, RowGroup<kThreads>::kRowsPerBlock * columns);
          launch(context, shape, backward_kernel<T, kThreads, decltype(width)::value>, op,
                 ranges.rows_per_block, partials, context.tickets);
        });
  });
}

}  // namespace meshplan::kernels::cuda
