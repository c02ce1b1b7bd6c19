#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "device/loops.hpp"
#include "training/operators.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const AdamStep& op) {
  require_float(op.weight_dtype);
  AdamStep now = op;
  if (op.step_at != nullptr) now.step = *op.step_at;
  if (op.learning_rate_at != nullptr) now.learning_rate = *op.learning_rate_at;
  require_invariant(now.step >= 1, "Adam's step counts from 1");
  for_elements(context, context.table.adam, now);
}

void run(const Context& context, const SgdStep& op) {
  require_float(op.weight_dtype);
  SgdStep now = op;
  if (op.learning_rate_at != nullptr) now.learning_rate = *op.learning_rate_at;
  for_elements(context, context.table.sgd, now);
}

std::int64_t scratch_bytes(const Context& /*context*/, const SquaredNorm& op) {
  return (op.count + kNormBlock - 1) / kNormBlock * size_of(DType::F64);
}

void run(const Context& context, const SquaredNorm& op) {
  const std::int64_t blocks = (op.count + kNormBlock - 1) / kNormBlock;
  require_scratch(context, blocks * size_of(DType::F64));
  double* sums = reinterpret_cast<double*>(context.scratch.data());
  parallel_for(context.num_threads, blocks, 1, [&](Range range, int /*thread*/) {
    for (std::int64_t block = range.begin; block < range.end; ++block) {
      const std::int64_t begin = block * kNormBlock;
      sums[block] =
          context.table.sum_of_squares(op.x + begin, std::min(kNormBlock, op.count - begin));
    }
  });
  double sum = op.accumulate ? *op.sum : 0.0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += sums[block];
  *op.sum = sum;
}

void run(const Context& /*context*/, const ClipCoefficient& op) {
  const double wanted = op.wanted_scale != nullptr ? *op.wanted_scale : 1.0;
  const double undo = op.applied_scale != nullptr ? wanted / double{*op.applied_scale} : 1.0;
  const double norm = std::sqrt(*op.sum_of_squares) * undo;
  if (op.norm != nullptr) *op.norm = static_cast<float>(norm);
  const double clip = std::min(1.0, double{op.max_norm} / (norm + 1e-6));
  *op.coefficient = std::isfinite(norm) ? static_cast<float>(clip * undo)
                                        : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace meshplan::kernels::cpu
