#include "core/error.hpp"
#include "device/largest.hpp"
#include "device/loops.hpp"
#include "norms/operators.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const RmsNormForward& op) {
  require_float(op.dtype);
  for_rows(context, context.table.rms_norm_forward, op, op.tokens, op.size);
  keep_largest(context, op.largest, op.y, op.tokens, op.size, op.y_stride, op.dtype);
}

void run(const Context& context, const RmsNormBackward& op) {
  require_float(op.dtype);
  if (op.dweight != nullptr) for_columns(context, context.table.rms_norm_weight_grad, op, op.size);
  if (op.dx == nullptr) return;
  for_rows(context, context.table.rms_norm_input_grad, op, op.tokens, op.size);
  keep_largest(context, op.largest, op.dx, op.tokens, op.size, op.dx_stride, op.dtype);
}

void run(const Context& context, const LayerNormForward& op) {
  require_float(op.dtype);
  for_rows(context, context.table.layer_norm_forward, op, op.tokens, op.size);
  keep_largest(context, op.largest, op.y, op.tokens, op.size, op.y_stride, op.dtype);
}

void run(const Context& context, const LayerNormBackward& op) {
  require_float(op.dtype);
  if (op.dweight != nullptr || op.dbias != nullptr)
    for_columns(context, context.table.layer_norm_weight_grad, op, op.size);
  if (op.dx == nullptr) return;
  for_rows(context, context.table.layer_norm_input_grad, op, op.tokens, op.size);
  keep_largest(context, op.largest, op.dx, op.tokens, op.size, op.dx_stride, op.dtype);
}

}  // namespace meshplan::kernels::cpu
