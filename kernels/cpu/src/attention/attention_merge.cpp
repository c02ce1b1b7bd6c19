// One softmax over the keys of several attentions. It moves memory and computes next to nothing, so
// it is left to the compiler.
#include <cmath>

#include "attention/operators.hpp"
#include "core/error.hpp"
#include "device/float_bits.hpp"
#include "device/threads.hpp"

namespace meshplan::kernels::cpu {

namespace {

/// One head of one token.
template <class T, class U>
void merge_head(T* o, const U* other_o, int size, float& lse, float other_lse) {
  if (other_lse == -INFINITY) return;
  const float largest = std::max(lse, other_lse);
  const float own = std::exp(lse - largest);
  const float other = std::exp(other_lse - largest);
  const float inverse = 1.0F / (own + other);
  for (int i = 0; i < size; ++i)
    set(o[i], (own * to_float(o[i]) + other * to_float(other_o[i])) * inverse);
  lse = largest + std::log(own + other);
}

template <class T, class U>
void merge_rows(const AttentionMerge& op, Range rows) {
  for (std::int64_t t = rows.begin; t < rows.end; ++t)
    for (int head = 0; head < op.heads; ++head)
      merge_head(static_cast<T*>(op.o) + t * op.o_stride + head * op.head_size,
                 static_cast<const U*>(op.other_o) + t * op.other_o_stride + head * op.head_size,
                 op.head_size, op.lse[op.lse_index(head, t)], op.other_lse[op.lse_index(head, t)]);
}

}  // namespace

void run(const Context& context, const AttentionMerge& op) {
  with_float_bits(op.dtype, [&]<class T>(T /*type*/) {
    with_float_bits(op.other_dtype, [&]<class U>(U /*type*/) {
      parallel_for(context.num_threads, op.tokens, kRowGrain,
                   [&](Range rows, int /*thread*/) { merge_rows<T, U>(op, rows); });
    });
  });
}

}  // namespace meshplan::kernels::cpu
