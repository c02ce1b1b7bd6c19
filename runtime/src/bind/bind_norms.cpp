#include "bind/bound_operands.hpp"

namespace meshplan::runtime {

std::function<void()> OperatorBinder::Body::bind_norm(const Operands& o) {
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t size = o.in_shape(0)[1];
  if (o.forward())
    return ready(kernels::RmsNormForward{.tokens = tokens,
                                         .size = size,
                                         .epsilon = static_cast<float>(o.work.attributes.epsilon),
                                         .dtype = o.dtype(),
                                         .x = o.in(0),
                                         .x_stride = size,
                                         .weight = o.in(1),
                                         .y = o.out(0),
                                         .y_stride = size,
                                         .inv_rms = o.out<float>(1),
                                         .residual = o.residual(),
                                         .sum = o.residual_sum(),
                                         .largest = o.largest()});
  return ready(kernels::RmsNormBackward{.tokens = tokens,
                                        .size = size,
                                        .dtype = o.dtype(),
                                        .dy = o.in(0),
                                        .dy_stride = size,
                                        .x = o.in(1),
                                        .x_stride = size,
                                        .weight = o.in(2),
                                        .inv_rms = o.in<float>(3),
                                        .dx = o.out(0),
                                        .dx_stride = size,
                                        .residual = o.optional_in(4),
                                        .dweight = o.gradient_of(2),
                                        .accumulate = o.instance.accumulate,
                                        .largest = o.largest()});
}

std::function<void()> OperatorBinder::Body::bind_head_norm(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const std::int64_t width = o.in_shape(0)[1];
  const kernels::HeadRmsNormShape shape{.tokens = o.in_shape(0)[0],
                                        .heads = a.heads,
                                        .kv_heads = a.kv_heads,
                                        .head_size = a.head_size};
  if (o.forward())
    return ready(kernels::HeadRmsNormForward{.shape = shape,
                                             .epsilon = static_cast<float>(a.epsilon),
                                             .dtype = o.dtype(),
                                             .x = o.in(0),
                                             .x_stride = width,
                                             .q_weight = o.in(1),
                                             .k_weight = o.in(2),
                                             .y = o.out(0),
                                             .inv_rms = o.out<float>(1),
                                             .rotation = head_rotation(o)});
  return ready(kernels::HeadRmsNormBackward{.shape = shape,
                                            .dtype = o.dtype(),
                                            .gradient = o.out(0),
                                            .gradient_stride = width,
                                            .x = o.in(1),
                                            .x_stride = width,
                                            .q_weight = o.in(2),
                                            .k_weight = o.in(3),
                                            .inv_rms = o.in<float>(4),
                                            .dq_weight = o.gradient_of(2),
                                            .dk_weight = o.gradient_of(3),
                                            .accumulate = o.instance.accumulate,
                                            .rotation = head_rotation(o)});
}

/// Behind a norm of heads, if there is one.
kernels::HeadRotation OperatorBinder::Body::head_rotation(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  if (a.rope_size == 0) return {};
  return {.rope_size = a.rope_size, .positions = row_positions(o), .table = rope_table(a)};
}

std::function<void()> OperatorBinder::Body::bind_layer_norm(const Operands& o) {
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t size = o.in_shape(0)[1];
  const bool has_bias = o.operation.inputs.size() > (o.work.adds_residual ? 3 : 2);
  if (o.forward())
    return ready(kernels::LayerNormForward{.tokens = tokens,
                                           .size = size,
                                           .epsilon = static_cast<float>(o.work.attributes.epsilon),
                                           .dtype = o.dtype(),
                                           .x = o.in(0),
                                           .x_stride = size,
                                           .weight = o.in(1),
                                           .bias = has_bias ? o.in(2) : nullptr,
                                           .y = o.out(0),
                                           .y_stride = size,
                                           .mean = o.out<float>(1),
                                           .inv_std = o.out<float>(2),
                                           .residual = o.residual(),
                                           .sum = o.residual_sum(),
                                           .largest = o.largest()});
  return ready(kernels::LayerNormBackward{.tokens = tokens,
                                          .size = size,
                                          .dtype = o.dtype(),
                                          .dy = o.in(0),
                                          .dy_stride = size,
                                          .x = o.in(1),
                                          .x_stride = size,
                                          .weight = o.in(2),
                                          .mean = o.in<float>(3),
                                          .inv_std = o.in<float>(4),
                                          .dx = o.out(0),
                                          .dx_stride = size,
                                          .residual = o.optional_in(5),
                                          .dweight = o.gradient_of(2),
                                          .dbias = o.gradient_beside(2),
                                          .accumulate = o.instance.accumulate,
                                          .largest = o.largest()});
}

}  // namespace meshplan::runtime
