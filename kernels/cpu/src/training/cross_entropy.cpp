#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "device/loops.hpp"
#include "training/operators.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const CrossEntropyLocal& op) {
  require_float(op.dtype);
  require_invariant(op.valid <= op.columns, "valid columns are among the columns");
  for_rows(context, context.table.cross_entropy_local, op, op.tokens, op.columns);
}

void run(const Context& /*context*/, const CrossEntropyCombine& op) {
  for (std::int64_t t = 0; t < op.tokens; ++t) {
    const auto stat = [&](std::int64_t shard, int which) {
      return op.stats[(shard * op.tokens + t) * kCrossEntropyStats + which];
    };
    float maximum = -std::numeric_limits<float>::infinity();
    for (std::int64_t s = 0; s < op.num_shards; ++s) maximum = std::max(maximum, stat(s, 0));
    double sum = 0.0;
    double target_logit = 0.0;
    for (std::int64_t s = 0; s < op.num_shards; ++s) {
      sum += double{stat(s, 1)} * std::exp(double{stat(s, 0)} - double{maximum});
      target_logit += double{stat(s, 2)};
    }
    const double lse = double{maximum} + std::log(sum);
    op.lse[t] = static_cast<float>(lse);
    op.loss[t] = op.targets[t] < 0 ? 0.0F : static_cast<float>(lse - target_logit);
  }
}

void run(const Context& context, const CrossEntropyBackward& op) {
  require_float(op.dtype);
  require_invariant(op.valid <= op.columns, "valid columns are among the columns");
  for_rows(context, context.table.cross_entropy_backward, op, op.tokens, op.columns);
}

void run(const Context& /*context*/, const SumLoss& op) {
  double sum = op.accumulate ? *op.sum : 0.0;
  for (std::int64_t t = 0; t < op.tokens; ++t) sum += op.weight * double{op.loss[t]};
  *op.sum = sum;
}

}  // namespace meshplan::kernels::cpu
