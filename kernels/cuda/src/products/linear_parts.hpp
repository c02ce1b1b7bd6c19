// What goes around a matrix product where it has no epilogue for it.
#pragma once

#include "device/context.hpp"
#include "kernels/elementwise/activation.hpp"
#include "kernels/products/linear.hpp"

namespace meshplan::kernels::cuda {

/// y = act(x), or with dy: y = dy act'(x); on rows that are `stride` elements apart. y may be x or
/// dy.
struct ActivationRows {
  ActivationKind kind = ActivationKind::Gelu;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DType dtype = DType::F32;
  const void* dy = nullptr;
  std::int64_t dy_stride = 0;
  const void* x = nullptr;
  std::int64_t x_stride = 0;
  void* y = nullptr;
  std::int64_t y_stride = 0;
};
void enqueue(const Context& context, const ActivationRows& op);

/// fp32 numbers of scratch that enqueue_bias_grad needs.
std::int64_t bias_grad_floats(const LinearShape& shape);
/// dbias (+)= column sums of dy, in two stages of fixed order.
void enqueue_bias_grad(const Context& context, const LinearWeightGrad& op, float* partials);
/// sum (+)= one row of `columns` numbers.
void enqueue_add_row(const Context& context, const float* row, std::int64_t columns, float* sum,
                     bool accumulate);

}  // namespace meshplan::kernels::cuda
