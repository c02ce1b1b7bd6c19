#include "runtime/execute/touched_bytes.hpp"

namespace meshplan::test {

using namespace kernels;  // NOLINT: one overload for each of its operators

namespace {

Touched read_indexer(const Indexer& indexer) {
  const AttentionShape& s = indexer.shape;
  const std::int64_t queries = s.num_sequences * s.query_len;
  const std::int64_t keys = s.num_sequences * s.key_len;
  return Touched()
      .read_rows(indexer.q, queries, std::int64_t{s.heads} * s.head_size, indexer.q_stride,
                 indexer.dtype)
      .read_rows(indexer.k, keys, s.head_size, indexer.k_stride, indexer.dtype)
      .read_rows(indexer.weights, queries, s.heads, indexer.weights_stride, indexer.dtype);
}

}  // namespace

Touched touched(const AttentionForward& op) {
  const AttentionShape& s = op.shape;
  const std::int64_t queries = s.num_sequences * s.query_len;
  const std::int64_t keys = s.num_sequences * s.key_len;
  const std::int64_t width = std::int64_t{s.heads} * s.head_size;
  const std::int64_t kv_width = std::int64_t{s.kv_heads} * s.head_size;
  return Touched()
      .read_rows(op.q, queries, width, op.q_stride, op.dtype)
      .read_rows(op.k, keys, kv_width, op.kv_stride, op.dtype)
      .read_rows(op.v, keys, kv_width, op.kv_stride, op.dtype)
      .read(op.key_lengths, s.num_sequences, DType::I32)
      .read(op.key_ranges, 2 * queries, DType::I32)
      .read(op.sinks, s.heads, op.dtype)
      .write_rows(op.o, queries, width, op.o_stride, op.dtype)
      .write_rows(op.lse, s.num_sequences * s.heads, s.query_len,
                  op.lse_stride > 0 ? op.lse_stride : s.query_len, DType::F32);
}
Touched touched(const AttentionBackward& op) {
  const AttentionShape& s = op.shape;
  const std::int64_t queries = s.num_sequences * s.query_len;
  const std::int64_t keys = s.num_sequences * s.key_len;
  const std::int64_t width = std::int64_t{s.heads} * s.head_size;
  const std::int64_t kv_width = std::int64_t{s.kv_heads} * s.head_size;
  return Touched()
      .read_rows(op.q, queries, width, op.q_stride, op.dtype)
      .read_rows(op.k, keys, kv_width, op.kv_stride, op.dtype)
      .read_rows(op.v, keys, kv_width, op.kv_stride, op.dtype)
      .read(op.key_lengths, s.num_sequences, DType::I32)
      .read(op.key_ranges, 2 * queries, DType::I32)
      .read_rows(op.o, queries, width, op.o_stride, op.dtype)
      .read_rows(op.output_grad, queries, width, op.o_stride, op.dtype)
      .read_rows(op.lse, s.num_sequences * s.heads, s.query_len,
                 op.lse_stride > 0 ? op.lse_stride : s.query_len, DType::F32)
      .write_rows(op.dq, queries, width, op.dq_stride, op.dtype)
      .write_rows(op.dk, keys, kv_width, op.dkv_stride, op.dtype)
      .write_rows(op.dv, keys, kv_width, op.dkv_stride, op.dtype);
}
Touched touched(const AttentionSinksGrad& op) {
  const std::int64_t width = std::int64_t{op.heads} * op.head_size;
  return Touched()
      .read(op.sinks, op.heads, op.dtype)
      .read_rows(op.o, op.tokens, width, op.o_stride, op.dtype)
      .read_rows(op.output_grad, op.tokens, width, op.o_stride, op.dtype)
      .read(op.lse, op.tokens * op.heads, DType::F32)
      .update(op.dsinks, op.heads, DType::F32, op.accumulate);
}
Touched touched(const AttentionMerge& op) {
  const std::int64_t width = std::int64_t{op.heads} * op.head_size;
  const std::int64_t lse_stride = op.lse_stride > 0 ? op.lse_stride : op.tokens;
  return Touched()
      .read_rows(op.other_o, op.tokens, width, op.other_o_stride, op.other_dtype)
      .read_rows(op.other_lse, op.heads, op.tokens, lse_stride, DType::F32)
      .read_rows(op.o, op.tokens, width, op.o_stride, op.dtype)
      .write_rows(op.o, op.tokens, width, op.o_stride, op.dtype)
      .read_rows(op.lse, op.heads, op.tokens, lse_stride, DType::F32)
      .write_rows(op.lse, op.heads, op.tokens, lse_stride, DType::F32);
}
Touched touched(const LatentHeadsForward& op) {
  const LatentShape& s = op.shape;
  return Touched()
      .read(op.q, s.tokens * s.query_columns(), op.dtype)
      .read(op.kv, s.tokens * s.kv_columns(), op.dtype)
      .read(op.k_rope, s.tokens * s.rope_size, op.dtype)
      .write(op.qkv, s.tokens * s.columns(), op.dtype);
}
Touched touched(const LatentHeadsBackward& op) {
  const LatentShape& s = op.shape;
  return Touched()
      .read(op.dqkv, s.tokens * s.columns(), op.dtype)
      .write(op.dq, s.tokens * s.query_columns(), op.dtype)
      .write(op.dkv, s.tokens * s.kv_columns(), op.dtype)
      .write(op.dk_rope, s.tokens * s.rope_size, op.dtype);
}
Touched touched(const SelectKeysForward& op) {
  const std::int64_t queries = op.indexer.shape.num_sequences * op.indexer.shape.query_len;
  return read_indexer(op.indexer)
      .read(op.indexer.key_lengths, op.indexer.shape.num_sequences, DType::I32)
      .read(op.indexer.key_ranges, 2 * queries, DType::I32)
      .write(op.choices, queries * op.top_k, DType::I32);
}
Touched touched(const SparseAttentionForward& op) {
  const AttentionShape& s = op.shape;
  const std::int64_t queries = s.num_sequences * s.query_len;
  const std::int64_t keys = s.num_sequences * s.key_len;
  return Touched()
      .read_rows(op.q, queries, std::int64_t{s.heads} * s.head_size, op.q_stride, op.dtype)
      .read_rows(op.k, keys, std::int64_t{s.kv_heads} * s.head_size, op.kv_stride, op.dtype)
      .read_rows(op.v, keys, std::int64_t{s.kv_heads} * s.value_size(), op.kv_stride, op.dtype)
      .read(op.choices, queries * op.top_k, DType::I32)
      .write_rows(op.o, queries, std::int64_t{s.heads} * s.value_size(), op.o_stride, op.dtype)
      .write_rows(op.lse, s.num_sequences * s.heads, s.query_len,
                  op.lse_stride > 0 ? op.lse_stride : s.query_len, DType::F32)
      .write(op.probabilities, queries * op.top_k, DType::F32);
}
Touched touched(const SparseAttentionBackward& op) {
  const AttentionShape& s = op.shape;
  const std::int64_t queries = s.num_sequences * s.query_len;
  const std::int64_t keys = s.num_sequences * s.key_len;
  const std::int64_t width = std::int64_t{s.heads} * s.head_size;
  const std::int64_t value_width = std::int64_t{s.heads} * s.value_size();
  const std::int64_t kv_width = std::int64_t{s.kv_heads} * s.head_size;
  const std::int64_t kv_value_width = std::int64_t{s.kv_heads} * s.value_size();
  return Touched()
      .read_rows(op.q, queries, width, op.q_stride, op.dtype)
      .read_rows(op.k, keys, kv_width, op.kv_stride, op.dtype)
      .read_rows(op.v, keys, kv_value_width, op.kv_stride, op.dtype)
      .read(op.choices, queries * op.top_k, DType::I32)
      .read_rows(op.o, queries, value_width, op.o_stride, op.dtype)
      .read_rows(op.output_grad, queries, value_width, op.o_stride, op.dtype)
      .read_rows(op.lse, s.num_sequences * s.heads, s.query_len,
                 op.lse_stride > 0 ? op.lse_stride : s.query_len, DType::F32)
      .write_rows(op.dq, queries, width, op.dq_stride, op.dtype)
      .write_rows(op.dk, keys, kv_width, op.dkv_stride, op.dtype)
      .write_rows(op.dv, keys, kv_value_width, op.dkv_stride, op.dtype);
}
Touched touched(const IndexerLossForward& op) {
  const std::int64_t queries = op.indexer.shape.num_sequences * op.indexer.shape.query_len;
  return read_indexer(op.indexer)
      .read(op.choices, queries * op.top_k, DType::I32)
      .read(op.probabilities, queries * op.top_k, DType::F32)
      .write(op.loss, queries, DType::F32);
}
Touched touched(const IndexerLossBackward& op) {
  const AttentionShape& s = op.indexer.shape;
  const DType dtype = op.indexer.dtype;
  const std::int64_t queries = s.num_sequences * s.query_len;
  const std::int64_t keys = s.num_sequences * s.key_len;
  return read_indexer(op.indexer)
      .read(op.choices, queries * op.top_k, DType::I32)
      .read(op.probabilities, queries * op.top_k, DType::F32)
      .read(op.scale, 1, DType::F32)
      .write_rows(op.dq, queries, std::int64_t{s.heads} * s.head_size, op.dq_stride, dtype)
      .write_rows(op.dk, keys, s.head_size, op.dk_stride, dtype)
      .write_rows(op.dweights, queries, s.heads, op.dweights_stride, dtype);
}

}  // namespace meshplan::test
