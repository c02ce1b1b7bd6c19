#include "bind/bound_operands.hpp"
#include "core/error.hpp"

namespace meshplan::runtime {
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
    case models::ActivationKind::ClampedSilu:
      return kernels::ActivationKind::ClampedSilu;
    case models::ActivationKind::Tanh:
      return kernels::ActivationKind::Tanh;
    default:
      throw InvariantError("activation without a kernel; check(plan) must refuse it");
  }
}

using program::ComputeKind;

/// Routed rows come with the offsets of their experts as operand `offsets`: then only as many rows
/// are computed as there are when the call runs. Offsets on a device are not waited for: with ep >
/// 1 the host knows the rows since they were exchanged, and with ep = 1 all rows that there can be
/// are computed, of which those behind the last expert's belong to nobody.
template <class Call, class SetRows>
std::function<void()> OperatorBinder::Body::of_rows(const Operands& o, std::size_t offsets,
                                                    Call call, SetRows set_rows) {
  kernels::Operation operation = call;
  if (o.operation.inputs.size() <= offsets) return ready(operation);
  if (backend_.reads_group_offsets()) {
    if (program_.plan.parallel.ep == 1) return ready(operation);
    return [this, operation, visit = visit_of(o.instance), set_rows]() mutable {
      set_rows(std::get<Call>(operation), routed_rows_[visit]);
      backend_.run(operation);
    };
  }
  const std::int32_t* last = o.in<std::int32_t>(offsets) + o.in_elements(offsets) - 1;
  return [this, operation, last, set_rows]() mutable {
    std::int32_t rows = 0;
    backend_.copy_to_host(&rows, last, sizeof rows);
    set_rows(std::get<Call>(operation), rows);
    backend_.run(operation);
  };
}

std::function<void()> OperatorBinder::Body::bind_activation(const Operands& o) {
  const kernels::ActivationKind kind = kernel_kind(o.work.attributes.activation);
  const std::int64_t width = o.in_shape(0)[1];
  const auto set_rows = [width](auto& call, std::int64_t rows) { call.count = rows * width; };
  if (o.forward())
    return of_rows(o, 1,
                   kernels::ActivationForward{.kind = kind,
                                              .count = o.in_elements(0),
                                              .dtype = o.dtype(),
                                              .x = o.in(0),
                                              .y = o.out(0),
                                              .largest = o.largest()},
                   set_rows);
  return of_rows(o, 2,
                 kernels::ActivationBackward{.kind = kind,
                                             .count = o.in_elements(0),
                                             .dtype = o.dtype(),
                                             .dy = o.in(0),
                                             .x = o.in(1),
                                             .dx = o.out(0),
                                             .largest = o.largest()},
                 set_rows);
}

std::function<void()> OperatorBinder::Body::bind_gated_activation(const Operands& o) {
  const kernels::ActivationKind kind = kernel_kind(o.work.attributes.activation);
  const auto set_rows = [](auto& call, std::int64_t rows) { call.tokens = rows; };
  if (o.forward()) {
    const std::int64_t size = o.out_shape(0)[1];
    return of_rows(o, 1,
                   kernels::GatedActivationForward{.kind = kind,
                                                   .tokens = o.in_shape(0)[0],
                                                   .size = size,
                                                   .dtype = o.dtype(),
                                                   .x = o.in(0),
                                                   .x_stride = 2 * size,
                                                   .y = o.out(0),
                                                   .y_stride = size,
                                                   .largest = o.largest()},
                   set_rows);
  }
  const std::int64_t size = o.in_shape(0)[1];
  return of_rows(o, 2,
                 kernels::GatedActivationBackward{.kind = kind,
                                                  .tokens = o.in_shape(0)[0],
                                                  .size = size,
                                                  .dtype = o.dtype(),
                                                  .dy = o.in(0),
                                                  .dy_stride = size,
                                                  .x = o.in(1),
                                                  .x_stride = 2 * size,
                                                  .dx = o.out(0),
                                                  .dx_stride = 2 * size,
                                                  .largest = o.largest()},
                 set_rows);
}

namespace {

/// Gates of heads are gates of rows that are a head long each.
struct GatedRows {
  std::int64_t tokens = 0, size = 0, gates = 1;
};
GatedRows gated_rows(const std::vector<std::int64_t>& shape, std::int64_t gates) {
  if (gates == 1 || gates == shape[1])
    return {.tokens = shape[0], .size = shape[1], .gates = gates};
  return {.tokens = shape[0] * gates, .size = shape[1] / gates};
}

}  // namespace

std::function<void()> OperatorBinder::Body::bind_sigmoid_gate(const Operands& o) {
  const GatedRows rows = gated_rows(o.in_shape(0), o.in_shape(o.forward() ? 1 : 2)[1]);
  if (o.forward())
    return ready(kernels::SigmoidGateForward{.tokens = rows.tokens,
                                             .size = rows.size,
                                             .gates = rows.gates,
                                             .dtype = o.dtype(),
                                             .x = o.in(0),
                                             .gate = o.in(1),
                                             .y = o.out(0)});
  return ready(kernels::SigmoidGateBackward{.tokens = rows.tokens,
                                            .size = rows.size,
                                            .gates = rows.gates,
                                            .dtype = o.dtype(),
                                            .dy = o.in(0),
                                            .x = o.in(1),
                                            .gate = o.in(2),
                                            .dx = o.out(0),
                                            .dgate = o.out(1)});
}

std::function<void()> OperatorBinder::Body::bind_pointwise(const Operands& o) {
  if (o.work.kind == ComputeKind::Scale)
    return ready(kernels::Scale{.count = o.in_elements(0),
                                .dtype = o.dtype(),
                                .factor = static_cast<float>(o.work.attributes.scale),
                                .x = o.in(0),
                                .y = o.out(0)});
  if (o.work.kind == ComputeKind::Add)
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
