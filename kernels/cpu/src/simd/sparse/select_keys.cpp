#include "attention/sparse_layout.hpp"
#include "simd/kernels.hpp"
#include "simd/sparse/indexer_tiles.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

template <class T>
void pack_keys(const Indexer& indexer, int64_t sequence, float* scratch) {
  const SelectKeysLayout layout = select_keys_layout(indexer.shape);
  const AttentionShape& shape = indexer.shape;
  pack_rows(scratch + layout.key, layout.head,
            static_cast<const T*>(indexer.k) + sequence * shape.key_len * indexer.k_stride,
            indexer.k_stride, shape.head_size, shape.key_len, layout.keys);
  transpose_blocks(scratch + layout.keys_transposed, scratch + layout.key, layout.head,
                   layout.keys);
}

template <class T>
void score_keys(const Indexer& indexer, int64_t token, KeyRange keys, float* scratch) {
  const SelectKeysLayout layout = select_keys_layout(indexer.shape);
  float* query = scratch + layout.query;
  float* weights = scratch + layout.weights;
  float* products = scratch + layout.products;
  pack_index_query<T>(indexer, query, weights, layout.head, token);
  for (int64_t key = keys.begin / kKeyBlock * kKeyBlock; key < keys.end; key += kKeyBlock) {
    const int64_t columns = block_columns(key, keys.end);
    multiply_block(indexer.shape, products, query, layout.head,
                   scratch + layout.keys_transposed + key * layout.head, columns);
    sum_heads(indexer.shape, scratch + layout.scores + key, products, weights, columns);
  }
}

/// Integers that order as the scores do, negative ones included; a NaN is above all, -0 equals 0.
/// Whole vectors are read and written.
MESHPLAN_INLINE void order_scores(int32_t* order, const float* scores, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec score = load(scores + i);
    const IntVec bits = as_int(score == 0.0F ? Vec{} : score);
    const IntVec ordered = bits < 0 ? bits ^ 0x7fffffff : bits;
    const IntVec is_number = score == score;  // NOLINT(misc-redundant-expression): not of a NaN
    const IntVec result = is_number ? ordered : IntVec{} + 0x7fffffff;
    memcpy(order + i, &result, sizeof result);
  }
}

/// How many of the orders are at least `threshold`.
MESHPLAN_INLINE int64_t count_from(const int32_t* order, int64_t count, int32_t threshold) {
  IntVec reaching{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    IntVec own;
    memcpy(&own, order + i, sizeof own);
    reaching -= own >= threshold;  // a comparison that holds is -1
  }
  int64_t total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += reaching[lane];
  for (; i < count; ++i) total += order[i] >= threshold ? 1 : 0;
  return total;
}

/// The `keep` largest of `count` > keep orders: the keep-th largest bit by bit, then those above it
/// and the first of those equal to it, ascending. @param first  position of order[0]
void select_largest(const int32_t* order, int64_t count, int64_t keep, int64_t first,
                    int32_t* choices) {
  constexpr uint32_t kSign = 0x80000000U;  // from unsigned bits to signed numbers
  uint32_t bits = 0;                       // of the largest number that at least `keep` reach
  for (uint32_t bit = kSign; bit != 0; bit >>= 1)
    if (count_from(order, count, static_cast<int32_t>((bits | bit) ^ kSign)) >= keep) bits |= bit;
  const auto threshold = static_cast<int32_t>(bits ^ kSign);
  const int64_t above =
      threshold < 0x7fffffff ? count_from(order, count, threshold + 1) : int64_t{0};
  int64_t ties = keep - above;
  int64_t written = 0;
  for (int64_t i = 0; written < keep; ++i) {
    const bool tie = order[i] == threshold && ties > 0;
    choices[written] = static_cast<int32_t>(first + i);
    written += order[i] > threshold || tie ? 1 : 0;
    ties -= tie ? 1 : 0;
  }
}

template <class T>
void select(const SelectKeysForward& op, int64_t token, float* scratch) {
  const int64_t query_len = op.indexer.shape.query_len;
  const int64_t sequence = token / query_len;
  const KeyRange keys = visibility_of(op.indexer, sequence).of(token - sequence * query_len);
  const int64_t visible = keys.end - keys.begin;
  int32_t* choices = op.choices + token * op.top_k;
  if (visible <= op.top_k) {
    for (int64_t i = 0; i < op.top_k; ++i)
      choices[i] = i < visible ? static_cast<int32_t>(keys.begin + i) : -1;
    return;
  }
  const SelectKeysLayout layout = select_keys_layout(op.indexer.shape);
  auto* order = reinterpret_cast<int32_t*>(scratch + layout.order);
  score_keys<T>(op.indexer, token, keys, scratch);
  order_scores(order, scratch + layout.scores + keys.begin, visible);
  select_largest(order, visible, op.top_k, keys.begin, choices);
}

}  // namespace

void pack_index_keys(const Indexer& indexer, int64_t sequence, float* scratch) {
  with_type(indexer.dtype, [&]<class T>(T* /*type*/) { pack_keys<T>(indexer, sequence, scratch); });
}

void select_keys(const SelectKeysForward& op, int64_t token, float* scratch) {
  with_type(op.indexer.dtype, [&]<class T>(T* /*type*/) { select<T>(op, token, scratch); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
