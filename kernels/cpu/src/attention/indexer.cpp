#include <algorithm>

#include "attention/operators.hpp"
#include "attention/sparse_layout.hpp"
#include "core/error.hpp"
#include "device/threads.hpp"

namespace meshplan::kernels::cpu {

namespace {

void require_indexer(const Indexer& indexer, int top_k) {
  require_float(indexer.dtype);
  require_invariant(indexer.shape.heads > 0 && indexer.shape.kv_heads == 1 &&
                        indexer.shape.head_size > 0 && indexer.shape.softcap == 0.0F,
                    "an indexer has heads, one key head and no soft cap");
  require_invariant(top_k > 0, "a query chooses a key");
}

std::int64_t tokens_of(const Indexer& indexer) {
  return indexer.shape.num_sequences * indexer.shape.query_len;
}

/// Query number i of a sequence when first and last take turns: with a causal mask a thread's range
/// of them then holds as many short rows as long ones.
std::int64_t taking_turns(std::int64_t i, std::int64_t count) {
  return i % 2 == 0 ? i / 2 : count - 1 - i / 2;
}

std::int64_t gradient_blocks(const AttentionShape& shape) {
  return shape.num_sequences * ((shape.key_len + kGradientKeys - 1) / kGradientKeys);
}

}  // namespace

std::int64_t scratch_bytes(const Context& context, const SelectKeysForward& op) {
  return select_keys_layout(op.indexer.shape).size * context.num_threads * size_of(DType::F32);
}

std::int64_t scratch_bytes(const Context& context, const IndexerLossForward& op) {
  return indexer_loss_layout(op.indexer.shape, op.top_k, false).size * context.num_threads *
         size_of(DType::F32);
}

std::int64_t scratch_bytes(const Context& context, const IndexerLossBackward& op) {
  const std::int64_t threads =
      indexer_loss_layout(op.indexer.shape, op.top_k, true).size * context.num_threads;
  return (threads + tokens_of(op.indexer) * op.top_k) * size_of(DType::F32);
}

void run(const Context& context, const SelectKeysForward& op) {
  require_indexer(op.indexer, op.top_k);
  require_scratch(context, scratch_bytes(context, op));
  const std::int64_t floats = select_keys_layout(op.indexer.shape).size;
  const std::int64_t queries = op.indexer.shape.query_len;
  const std::int64_t tokens = tokens_of(op.indexer);
  const std::int64_t counted = tokens - op.uncounted_sequences * queries;
  std::fill(op.choices + counted * op.top_k, op.choices + tokens * op.top_k, -1);
  parallel_for(context.num_threads, counted, 1, [&](Range range, int thread) {
    float* scratch = context.thread_scratch(thread, floats);
    std::int64_t packed = -1;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const std::int64_t sequence = i / queries;
      if (sequence != packed) context.table.pack_index_keys(op.indexer, sequence, scratch);
      packed = sequence;
      const std::int64_t token = sequence * queries + taking_turns(i % queries, queries);
      context.table.select_keys(op, token, scratch);
    }
  });
}

void run(const Context& context, const IndexerLossForward& op) {
  require_indexer(op.indexer, op.top_k);
  require_scratch(context, scratch_bytes(context, op));
  const std::int64_t floats = indexer_loss_layout(op.indexer.shape, op.top_k, false).size;
  parallel_for(context.num_threads, tokens_of(op.indexer), 1, [&](Range tokens, int thread) {
    context.table.indexer_loss_forward(op, tokens, context.thread_scratch(thread, floats));
  });
}

/// Queries first, which leave the gradients of all scores; then keys, whose gradients sum over
/// queries in an order that no number of threads changes.
void run(const Context& context, const IndexerLossBackward& op) {
  require_indexer(op.indexer, op.top_k);
  require_scratch(context, scratch_bytes(context, op));
  const std::int64_t floats = indexer_loss_layout(op.indexer.shape, op.top_k, true).size;
  float* score_grads = context.thread_scratch(context.num_threads, floats);
  parallel_for(context.num_threads, tokens_of(op.indexer), 1, [&](Range tokens, int thread) {
    context.table.indexer_loss_query_grad(op, tokens, context.thread_scratch(thread, floats),
                                          score_grads);
  });
  parallel_for(context.num_threads, gradient_blocks(op.indexer.shape), 1,
               [&](Range blocks, int thread) {
                 context.table.indexer_loss_key_grad(
                     op, blocks, context.thread_scratch(thread, floats), score_grads);
               });
}

}  // namespace meshplan::kernels::cpu
