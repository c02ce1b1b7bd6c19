#include "core/error.hpp"
#include "device/loops.hpp"
#include "training/operators.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const RandomNormal& op) {
  for_rows(context, context.table.random_normal, op, op.rows, op.columns);
}

}  // namespace meshplan::kernels::cpu
