#include "bound_operands.hpp"
#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

kernels::ActivationKind kernel_kind(models::ActivationKind kind) {
  switch (kind) {
    case models::ActivationKind::Silu:
      return kernels::ActivationKind::Silu;
    case models::ActivationKind::Gelu:
      return kernels::ActivationKind::Gelu;
    case models::ActivationKind::GeluTanh:
      return kernels::ActivationKind::GeluTanh;
    case models::ActivationKind::SquaredRelu:
      return kernels::ActivationKind::SquaredRelu;
    case models::ActivationKind::Relu:
      return kernels::ActivationKind::Relu;
    default:
      throw InvariantError("activation without a kernel; check(plan) must refuse it");
  }
}

}  // namespace

using models::OpKind;

std::function<void()> OperatorBinder::bind_activation(const Operands& o) {
  const kernels::ActivationKind kind = kernel_kind(o.work.attributes.activation);
  if (o.forward())
    return ready(kernels::ActivationForward{
        .kind = kind, .count = o.in_elements(0), .dtype = o.dtype(), .x = o.in(0), .y = o.out(0)});
  return ready(kernels::ActivationBackward{.kind = kind,
                                           .count = o.in_elements(0),
                                           .dtype = o.dtype(),
                                           .dy = o.in(0),
                                           .x = o.in(1),
                                           .dx = o.out(0)});
}

std::function<void()> OperatorBinder::bind_gated_activation(const Operands& o) {
  const kernels::ActivationKind kind = kernel_kind(o.work.attributes.activation);
  if (o.forward()) {
    const std::int64_t size = o.out_shape(0)[1];
    return ready(kernels::GatedActivationForward{.kind = kind,
                                                 .tokens = o.in_shape(0)[0],
                                                 .size = size,
                                                 .dtype = o.dtype(),
                                                 .x = o.in(0),
                                                 .x_stride = 2 * size,
                                                 .y = o.out(0),
                                                 .y_stride = size});
  }
  const std::int64_t size = o.in_shape(0)[1];
  return ready(kernels::GatedActivationBackward{.kind = kind,
                                                .tokens = o.in_shape(0)[0],
                                                .size = size,
                                                .dtype = o.dtype(),
                                                .dy = o.in(0),
                                                .dy_stride = size,
                                                .x = o.in(1),
                                                .x_stride = 2 * size,
                                                .dx = o.out(0),
                                                .dx_stride = 2 * size});
}

std::function<void()> OperatorBinder::bind_pointwise(const Operands& o) {
  if (o.work.kind == OpKind::Scale)
    return ready(kernels::Scale{.count = o.in_elements(0),
                                .dtype = o.dtype(),
                                .factor = static_cast<float>(o.work.attributes.scale),
                                .x = o.in(0),
                                .y = o.out(0)});
  if (o.work.kind == OpKind::Add)
    return ready(kernels::Add{.count = o.in_elements(0),
                              .dtype = o.dtype(),
                              .a = o.in(0),
                              .b = o.in(1),
                              .sum = o.out(0)});
  return ready(kernels::Accumulate{.count = o.in_elements(0),
                                   .sum_dtype = o.dtype(),
                                   .sum = o.in(0),
                                   .value_dtype = o.dtype(),
                                   .value = o.in(1)});
}

}  // namespace meshplan::runtime
