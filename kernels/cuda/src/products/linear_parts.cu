#include "device/column_sums.cuh"
#include "device/dispatch.hpp"
#include "device/launch.cuh"
#include "elementwise/activation_functions.cuh"
#include "products/linear_parts.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kRowsPerPartial = 128;  // partial sums are then 1 % of the traffic in bf16

template <class T, ActivationKind kind>
__global__ void activation_rows_kernel(const ActivationRows op) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= op.columns) return;
  for (std::int64_t row = blockIdx.y; row < op.rows; row += gridDim.y) {
    const float x = to_float(static_cast<const T*>(op.x)[row * op.x_stride + column]);
    const float y = op.dy == nullptr
                        ? evaluate<kind>(x).value
                        : to_float(static_cast<const T*>(op.dy)[row * op.dy_stride + column]) *
                              evaluate<kind>(x).slope;
    static_cast<T*>(op.y)[row * op.y_stride + column] = from_float<T>(y);
  }
}

/// One thread a column, so that reads of a row are coalesced; rows in ascending order.
template <class T>
__global__ void partial_bias_grad_kernel(const LinearWeightGrad op, float* partials) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= op.shape.out_features) return;
  const std::int64_t first = std::int64_t{blockIdx.y} * kRowsPerPartial;
  const std::int64_t past = first + kRowsPerPartial;
  const std::int64_t end = past < op.shape.tokens ? past : op.shape.tokens;
  float sum = 0.0F;
  for (std::int64_t row = first; row < end; ++row)
    sum += to_float(static_cast<const T*>(op.dy)[row * op.dy_stride + column]);
  partials[blockIdx.y * op.shape.out_features + column] = sum;
}

}  // namespace

void enqueue(const Context& context, const ActivationRows& op) {
  constexpr std::int64_t kMostRows = 65535;  // of a grid; the kernel walks on
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    with_kind(op.kind, [&](auto kind) {
      launch(context,
             {.grid = dim3(static_cast<unsigned>(ceil_div(op.columns, kThreads)),
                           static_cast<unsigned>(op.rows < kMostRows ? op.rows : kMostRows)),
              .block = dim3(kThreads)},
             activation_rows_kernel<T, decltype(kind)::value>, op);
    });
  });
}

std::int64_t bias_grad_floats(const LinearShape& shape) {
  const std::int64_t partials = ceil_div(shape.tokens, kRowsPerPartial);
  return (partials > 1 ? partials : 1) * shape.out_features;
}

void enqueue_bias_grad(const Context& context, const LinearWeightGrad& op, float* partials) {
  const std::int64_t num_partials = ceil_div(op.shape.tokens, kRowsPerPartial);
  const std::int64_t columns = op.shape.out_features;
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(context,
           {.grid = dim3(static_cast<unsigned>(ceil_div(columns, kThreads)),
                         static_cast<unsigned>(num_partials)),
            .block = dim3(kThreads)},
           partial_bias_grad_kernel<T>, op, partials);
  });
  enqueue_sum_partials(context, partials, num_partials, columns, columns, op.dbias, op.accumulate);
}

void enqueue_add_row(const Context& context, const float* row, std::int64_t columns, float* sum,
                     bool accumulate) {
  enqueue_sum_partials(context, row, 1, columns, columns, sum, accumulate);
}

}  // namespace meshplan::kernels::cuda
