#include "attention/attention_layout.hpp"
#include "attention/operators.hpp"
#include "core/error.hpp"
#include "device/loops.hpp"

namespace meshplan::kernels::cpu {

namespace {

template <class Op>
void run_attention(const Context& context, void (*kernel)(const Op&, Range, float*), const Op& op,
                   std::int64_t thread_floats) {
  const AttentionShape& shape = op.shape;
  require_float(op.dtype);
  require_invariant(shape.heads > 0 && shape.kv_heads > 0 && shape.head_size > 0,
                    "attention has heads");
  require_invariant(shape.heads % shape.kv_heads == 0, "query heads are a multiple of key heads");
  require_scratch(context, thread_floats * context.num_threads * size_of(DType::F32));
  parallel_for(context.num_threads, shape.num_sequences * shape.kv_heads, 1,
               [&](Range pairs, int thread) {
                 kernel(op, pairs, context.thread_scratch(thread, thread_floats));
               });
}

}  // namespace

std::int64_t scratch_bytes(const Context& context, const AttentionForward& op) {
  return attention_forward_layout(op.shape).size * context.num_threads * size_of(DType::F32);
}

std::int64_t scratch_bytes(const Context& context, const AttentionBackward& op) {
  return attention_backward_layout(op.shape).size * context.num_threads * size_of(DType::F32);
}

void run(const Context& context, const AttentionForward& op) {
  run_attention(context, context.table.attention_forward, op,
                attention_forward_layout(op.shape).size);
}

void run(const Context& context, const AttentionBackward& op) {
  run_attention(context, context.table.attention_backward, op,
                attention_backward_layout(op.shape).size);
}

}  // namespace meshplan::kernels::cpu
