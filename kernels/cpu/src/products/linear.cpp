// Dense layers: their products on oneDNN, and what goes around these in passes
// of its own.
#include <algorithm>

#include "core/error.hpp"
#include "device/loops.hpp"
#include "products/matmul.hpp"
#include "products/operators.hpp"

namespace meshplan::kernels::cpu {

namespace {

/// The matrix product of a layer: it goes to where the activation's input is
/// kept.
LinearForward product_of(const LinearForward& op) {
  LinearForward product = op;
  if (op.activation && op.pre_activation != nullptr) {
    product.y = op.pre_activation;
    product.y_stride = op.pre_activation_stride;
  }
  return product;
}

template <class Op>
void run_product(const Context& context, const Op& op) {
  require_invariant(op.shape.in_features > 0 && op.shape.out_features > 0, "a layer has features");
  if (op.shape.tokens > 0) context.matmul.run(op, context.scratch);
}

/// y += residual.
void add_residual(const Context& context, const LinearForward& op) {
  const std::int64_t row = op.y_stride * size_of(op.dtype);
  for_each_row(context, op.shape.tokens, op.shape.out_features, [&](std::int64_t t) {
    void* y = offset(op.y, t * row);
    context.table.add({.count = op.shape.out_features,
                       .dtype = op.dtype,
                       .a = offset(op.residual, t * row),
                       .b = y,
                       .sum = y},
                      {0, op.shape.out_features});
  });
}

}  // namespace

std::int64_t scratch_bytes(const Context& context, const LinearForward& op) {
  return context.matmul.scratch_bytes(product_of(op));
}

std::int64_t scratch_bytes(const Context& context, const LinearInputGrad& op) {
  return context.matmul.scratch_bytes(op);
}

std::int64_t scratch_bytes(const Context& context, const LinearWeightGrad& op) {
  return context.matmul.scratch_bytes(op);
}

void run(const Context& context, const LinearForward& op) {
  const LinearForward product = product_of(op);
  require_invariant(op.residual == nullptr || !op.activation,
                    "a product ends in an activation or in a sum");
  run_product(context, product);
  if (op.residual != nullptr) add_residual(context, op);
  if (!op.activation) return;
  const std::int64_t element = size_of(op.dtype);
  for_each_row(context, op.shape.tokens, op.shape.out_features, [&](std::int64_t row) {
    const ActivationForward part{.kind = *op.activation,
                                 .count = op.shape.out_features,
                                 .dtype = op.dtype,
                                 .x = offset(product.y, row * product.y_stride * element),
                                 .y = offset(op.y, row * op.y_stride * element)};
    context.table.activation_forward(part, {0, part.count});
  });
}

void run(const Context& context, const LinearInputGrad& op) {
  run_product(context, op);
  if (!op.activation) return;
  require_invariant(op.pre_activation != nullptr, "an activation's gradient needs its input");
  const std::int64_t element = size_of(op.dtype);
  for_each_row(context, op.shape.tokens, op.shape.in_features, [&](std::int64_t row) {
    void* dx = offset(op.dx, row * op.dx_stride * element);
    const ActivationBackward part{
        .kind = *op.activation,
        .count = op.shape.in_features,
        .dtype = op.dtype,
        .dy = dx,
        .x = offset(op.pre_activation, row * op.pre_activation_stride * element),
        .dx = dx};
    context.table.activation_backward(part, {0, part.count});
  });
}

void run(const Context& context, const LinearWeightGrad& op) {
  require_float(op.dtype);
  const auto [tokens, in_features, out_features] = op.shape;
  if (op.dweight != nullptr && tokens > 0) run_product(context, op);
  if (op.dweight != nullptr && tokens == 0 && !op.accumulate) {
    for (std::int64_t row = 0; row < out_features; ++row)
      std::fill_n(op.dweight + row * op.dweight_stride, in_features, 0.0F);
  }
  if (op.dbias != nullptr) for_columns(context, context.table.bias_grad, op, out_features);
}

}  // namespace meshplan::kernels::cpu
