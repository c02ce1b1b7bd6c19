#include "attention/operators.hpp"
#include "attention/sparse_layout.hpp"
#include "core/error.hpp"
#include "device/threads.hpp"

namespace meshplan::kernels::cpu {

namespace {

/// @param total  parts that threads share: tokens, or pairs of a sequence and a key head
template <class Op>
void run_sparse(const Context& context, void (*kernel)(const Op&, Range, float*), const Op& op,
                std::int64_t total, std::int64_t thread_floats) {
  const AttentionShape& shape = op.shape;
  require_float(op.dtype);
  require_invariant(shape.heads > 0 && shape.kv_heads > 0 && shape.head_size > 0,
                    "attention has heads");
  require_invariant(shape.heads % shape.kv_heads == 0, "query heads are a multiple of key heads");
  require_invariant(op.top_k > 0 && shape.softcap == 0.0F,
                    "sparse attention has choices and no soft cap");
  require_scratch(context, thread_floats * context.num_threads * size_of(DType::F32));
  parallel_for(context.num_threads, total, 1, [&](Range range, int thread) {
    kernel(op, range, context.thread_scratch(thread, thread_floats));
  });
}

}  // namespace

std::int64_t scratch_bytes(const Context& context, const SparseAttentionForward& op) {
  return sparse_attention_layout(op.shape, op.top_k, false).size * context.num_threads *
         size_of(DType::F32);
}

std::int64_t scratch_bytes(const Context& context, const SparseAttentionBackward& op) {
  return sparse_attention_layout(op.shape, op.top_k, true).size * context.num_threads *
         size_of(DType::F32);
}

void run(const Context& context, const SparseAttentionForward& op) {
  run_sparse(context, context.table.sparse_attention_forward, op,
             op.shape.num_sequences * op.shape.query_len,
             sparse_attention_layout(op.shape, op.top_k, false).size);
}

void run(const Context& context, const SparseAttentionBackward& op) {
  run_sparse(context, context.table.sparse_attention_backward, op,
             op.shape.num_sequences * op.shape.kv_heads,
             sparse_attention_layout(op.shape, op.top_k, true).size);
}

}  // namespace meshplan::kernels::cpu
