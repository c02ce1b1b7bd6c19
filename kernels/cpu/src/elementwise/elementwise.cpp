#include <cstring>

#include "core/error.hpp"
#include "device/largest.hpp"
#include "device/loops.hpp"
#include "elementwise/operators.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const ActivationForward& op) {
  require_float(op.dtype);
  for_elements(context, context.table.activation_forward, op);
  keep_largest(context, op.largest, op.y, 1, op.count, op.count, op.dtype);
}

void run(const Context& context, const ActivationBackward& op) {
  require_float(op.dtype);
  for_elements(context, context.table.activation_backward, op);
  keep_largest(context, op.largest, op.dx, 1, op.count, op.count, op.dtype);
}

void run(const Context& context, const GatedActivationForward& op) {
  require_float(op.dtype);
  for_rows(context, context.table.gated_activation_forward, op, op.tokens, op.size);
  keep_largest(context, op.largest, op.y, op.tokens, op.size, op.y_stride, op.dtype);
}

void run(const Context& context, const GatedActivationBackward& op) {
  require_float(op.dtype);
  for_rows(context, context.table.gated_activation_backward, op, op.tokens, op.size);
  keep_largest(context, op.largest, op.dx, op.tokens, 2 * op.size, op.dx_stride, op.dtype);
}

void run(const Context& context, const SigmoidGateForward& op) {
  require_float(op.dtype);
  require_invariant(op.gates == 1 || op.gates == op.size,
                    "a gate is for a row or for each element");
  for_rows(context, context.table.sigmoid_gate_forward, op, op.tokens, op.size);
}

void run(const Context& context, const SigmoidGateBackward& op) {
  require_float(op.dtype);
  require_invariant(op.gates == 1 || op.gates == op.size,
                    "a gate is for a row or for each element");
  for_rows(context, context.table.sigmoid_gate_backward, op, op.tokens, op.size);
}

void run(const Context& context, const Add& op) {
  require_float(op.dtype);
  for_elements(context, context.table.add, op);
}

void run(const Context& context, const Accumulate& op) {
  require_float(op.sum_dtype);
  require_float(op.value_dtype);
  for_elements(context, context.table.accumulate, op);
}

void run(const Context& context, const Scale& op) {
  require_float(op.dtype);
  for_elements(context, context.table.scale, op);
}

void run(const Context& context, const Fill& op) {
  require_float(op.dtype);
  for_elements(context, context.table.fill, op);
}

void run(const Context& context, const Convert& op) {
  require_float(op.from_dtype);
  require_float(op.to_dtype);
  for_elements(context, context.table.convert, op);
}

void run(const Context& context, const CopyRows& op) {
  for_each_row(context, op.rows, op.row_bytes / size_of(DType::F32), [&](std::int64_t row) {
    std::memcpy(offset(op.y, row * op.y_stride_bytes), offset(op.x, row * op.x_stride_bytes),
                static_cast<std::size_t>(op.row_bytes));
  });
}

}  // namespace meshplan::kernels::cpu
