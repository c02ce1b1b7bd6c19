#include "attention/operators.hpp"
#include "core/error.hpp"
#include "device/loops.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const LatentHeadsForward& op) {
  require_float(op.dtype);
  for_rows(context, context.table.latent_heads_forward, op, op.shape.tokens, op.shape.columns());
}

void run(const Context& context, const LatentHeadsBackward& op) {
  require_float(op.dtype);
  for_rows(context, context.table.latent_heads_backward, op, op.shape.tokens, op.shape.columns());
}

}  // namespace meshplan::kernels::cpu
