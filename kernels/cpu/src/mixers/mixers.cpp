// Short convolutions and gated norms: operands checked, rows or channels dealt out to threads.
#include "core/error.hpp"
#include "device/loops.hpp"
#include "mixers/operators.hpp"

namespace meshplan::kernels::cpu {

namespace {

void require_shape(const ShortConvolutionShape& shape) {
  require_invariant(shape.taps >= 1 && shape.taps <= kMaxConvolutionTaps,
                    "a short convolution has 1 to 4 taps");
  require_invariant(shape.seq_len > 0, "a short convolution is over sequences");
}

}  // namespace

void run(const Context& context, const ShortConvolutionForward& op) {
  require_float(op.dtype);
  require_shape(op.shape);
  for_rows(context, context.table.short_convolution_forward, op, op.shape.tokens,
           op.shape.channels);
}

void run(const Context& context, const ShortConvolutionBackward& op) {
  require_float(op.dtype);
  require_shape(op.shape);
  for_columns(context, context.table.short_convolution_backward, op, op.shape.channels);
}

void run(const Context& context, const GatedRmsNormForward& op) {
  require_float(op.dtype);
  for_rows(context, context.table.gated_rms_norm_forward, op, op.shape.tokens, op.shape.columns());
}

void run(const Context& context, const GatedRmsNormBackward& op) {
  require_float(op.dtype);
  require_invariant((op.dx == nullptr) == (op.dz == nullptr),
                    "x and z of a gated norm get their gradients together");
  if (op.dweight != nullptr)
    for_columns(context, context.table.gated_rms_norm_weight_grad, op, op.shape.weights());
  if (op.dx == nullptr) return;
  for_rows(context, context.table.gated_rms_norm_input_grad, op, op.shape.tokens,
           op.shape.columns());
}

}  // namespace meshplan::kernels::cpu
