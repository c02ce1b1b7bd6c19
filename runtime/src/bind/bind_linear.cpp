#include "bind/bound_operands.hpp"

namespace meshplan::runtime {

using program::Phase;

std::function<void()> OperatorBinder::Body::bind_linear(const Operands& o) {
  const bool weight_grad = o.operation.phase == Phase::WeightGrad;
  const std::vector<std::int64_t> weight = weight_grad ? o.out_shape(0) : o.in_shape(1);
  const kernels::LinearShape shape{
      .tokens = o.in_shape(0)[0], .in_features = weight[1], .out_features = weight[0]};
  std::optional<kernels::ActivationKind> activation;
  if (o.work.fused_activation) activation = kernel_kind(*o.work.fused_activation);
  if (o.forward())
    return ready(kernels::LinearForward{.shape = shape,
                                        .dtype = o.dtype(),
                                        .x = o.in(0),
                                        .x_stride = weight[1],
                                        .weight = o.in(1),
                                        .weight_stride = weight[1],
                                        .bias = o.optional_in(2, o.work.adds_residual),
                                        .y = o.out(0),
                                        .y_stride = weight[0],
                                        .activation = activation,
                                        .pre_activation = o.optional_out(1),
                                        .pre_activation_stride = weight[0],
                                        .residual = o.residual()});
  if (!weight_grad)
    return ready(kernels::LinearInputGrad{.shape = shape,
                                          .dtype = o.dtype(),
                                          .dy = o.in(0),
                                          .dy_stride = weight[0],
                                          .weight = o.in(1),
                                          .weight_stride = weight[1],
                                          .dx = o.out(0),
                                          .dx_stride = weight[1],
                                          .activation = activation,
                                          .pre_activation = o.optional_in(2),
                                          .pre_activation_stride = weight[1]});
  return ready(
      kernels::LinearWeightGrad{.shape = shape,
                                .dtype = o.dtype(),
                                .dy = o.in(0),
                                .dy_stride = weight[0],
                                .x = o.in(1),
                                .x_stride = weight[1],
                                .dweight = o.out<float>(0),
                                .dweight_stride = weight[1],
                                .dbias = o.operation.outputs.size() > 1 ? o.out<float>(1) : nullptr,
                                .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::Body::bind_bias(const Operands& o) {
  if (!o.forward() && o.operation.inputs.size() > 1) return bind_grouped_bias(o);
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t size = o.in_shape(0)[1];
  if (o.forward())  // a bias is a table of positions with one row
    return ready(kernels::PositionEmbeddingForward{.tokens = tokens,
                                                   .size = size,
                                                   .positions = {.seq_len = 1},
                                                   .dtype = o.dtype(),
                                                   .x = o.in(0),
                                                   .x_stride = size,
                                                   .weight = o.in(1),
                                                   .out = o.out(0),
                                                   .out_stride = size});
  std::function<void()> sums = ready(kernels::LinearWeightGrad{
      .shape = {.tokens = tokens, .in_features = size, .out_features = size},
      .dtype = o.dtype(),
      .dy = o.in(0),
      .dy_stride = size,
      .dbias = o.out<float>(0),
      .accumulate = o.instance.accumulate});
  const std::vector<std::int64_t> table = o.out_shape(0);
  if (table.size() < 2 || table[0] == 1 || o.instance.accumulate) return sums;
  // The bias is the first row of a table: no token reads the others.
  return both(std::move(sums), ready(kernels::Fill{.count = (table[0] - 1) * size,
                                                   .dtype = DType::F32,
                                                   .x = o.out<float>(0) + size}));
}

}  // namespace meshplan::runtime
