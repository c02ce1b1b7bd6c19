// Gradients of attention sinks: two passes over o and do, left to the compiler's vectors.
#include <cmath>

#include "attention/operators.hpp"
#include "core/error.hpp"
#include "device/float_bits.hpp"
#include "device/threads.hpp"

namespace meshplan::kernels::cpu {

namespace {

template <class T>
float row_sum(const T* o, const T* output_grad, int size) {
  float sum = 0.0F;
  for (int i = 0; i < size; ++i) sum += to_float(o[i]) * to_float(output_grad[i]);
  return sum;
}

/// Tokens in ascending order, in fp64: the order does not depend on the number of threads.
template <class T>
void sum_heads(const AttentionSinksGrad& op, Range heads) {
  for (std::int64_t head = heads.begin; head < heads.end; ++head) {
    const float sink = to_float(static_cast<const T*>(op.sinks)[head]);
    double sum = op.accumulate ? op.dsinks[head] : 0.0;
    for (std::int64_t t = 0; t < op.tokens; ++t) {
      const std::int64_t begin = t * op.o_stride + head * op.head_size;
      const float delta = row_sum(static_cast<const T*>(op.o) + begin,
                                  static_cast<const T*>(op.output_grad) + begin, op.head_size);
      sum -= double{std::exp(sink - op.lse[op.lse_index(t, head)]) * delta};
    }
    op.dsinks[head] = static_cast<float>(sum);
  }
}

}  // namespace

void run(const Context& context, const AttentionSinksGrad& op) {
  with_float_bits(op.dtype, [&]<class T>(T /*type*/) {
    parallel_for(context.num_threads, op.heads, 1,
                 [&](Range heads, int /*thread*/) { sum_heads<T>(op, heads); });
  });
}

}  // namespace meshplan::kernels::cpu
