#include "simd/attention_tiles.hpp"
#include "simd/kernels.hpp"
#include "simd/small_gemm.hpp"
#include "simd/soft_cap.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

/// One query head of one sequence, packed.
struct Head {
  const AttentionBackward& op;
  const AttentionLayout& layout;
  float* scratch;
  const Visibility& visibility;
  int64_t sequence;
  int64_t head;
};

/// Where a pair (query block, key block) lies.
struct Pair {
  int64_t first_query;
  int64_t num_queries;
  int64_t first_key;
  int64_t num_keys;  // that any of the queries sees
  int64_t columns;   // num_keys in whole vectors
};

/// From scores to probabilities p, and from dp to ds = p (dp - delta) scale, with a soft cap times
/// its slope, for one row.
template <class Cap>
MESHPLAN_INLINE void score_grad_row(float* p, float* ds, int64_t columns, float scale, float lse,
                                    float delta, Cap cap) {
  for (int64_t i = 0; i < columns; i += kLanes) {
    const Vec score = cap.value(load(p + i) * scale);
    const Vec probability = exp(score - lse);
    store(p + i, probability);
    store(ds + i, probability * (load(ds + i) - delta) * scale * cap.slope(score));
  }
}

/// Rows of `size` elements, `padded` apart: of queries and keys, or of values and output gradients.
struct Width {
  int64_t size;
  int64_t padded;
};
MESHPLAN_INLINE Width key_width(const Head& h) {
  return {h.op.shape.head_size, h.layout.head};
}
MESHPLAN_INLINE Width value_width(const Head& h) {
  return {h.layout.value_size, h.layout.value};
}

/// out (queries, keys) = rows (queries, width) times a transposed key block.
void scores_of(const Pair& pair, Width width, float* out, const float* rows,
               const float* transposed) {
  small_gemm({.c = out,
              .c_stride = kKeyBlock,
              .a = rows + pair.first_query * width.padded,
              .a_row_stride = width.padded,
              .a_column_stride = 1,
              .b = transposed + pair.first_key * width.padded,
              .b_stride = kKeyBlock,
              .m = pair.num_queries,
              .n = pair.columns,
              .k = width.size,
              .accumulate = false});
}

/// out (keys, width) += weights^T (keys, queries) times rows (queries, width).
void add_to_keys(const Pair& pair, Width width, float* out, const float* weights,
                 const float* rows) {
  small_gemm({.c = out + pair.first_key * width.padded,
              .c_stride = width.padded,
              .a = weights,
              .a_row_stride = 1,
              .a_column_stride = kKeyBlock,
              .b = rows + pair.first_query * width.padded,
              .b_stride = width.padded,
              .m = pair.num_keys,
              .n = width.padded,
              .k = pair.num_queries,
              .accumulate = true});
}

/// Adds what one pair of blocks gives to dq, dk and dv.
void backward_tile(const Head& h, const Pair& pair) {
  const AttentionLayout& layout = h.layout;
  const AttentionShape& shape = h.op.shape;
  float* p = h.scratch + layout.scores;
  float* ds = h.scratch + layout.score_grads;
  const float* query = h.scratch + layout.query;
  const float* output_grad = h.scratch + layout.output_grad;
  scores_of(pair, key_width(h), p, query, h.scratch + layout.keys_transposed);
  scores_of(pair, value_width(h), ds, output_grad, h.scratch + layout.values_transposed);
  for (int64_t i = 0; i < pair.num_queries; ++i) {
    const int64_t query_index = pair.first_query + i;
    float* p_row = p + i * kKeyBlock;
    float* ds_row = ds + i * kKeyBlock;
    const KeyRange keys = h.visibility.of(query_index);
    if (keys.begin == keys.end) {  // its lse is -infinity
      memset(p_row, 0, kKeyBlock * sizeof(float));
      memset(ds_row, 0, kKeyBlock * sizeof(float));
      continue;
    }
    const float lse =
        h.op.lse[statistic_index(shape, h.op.lse_stride, h.sequence, h.head, query_index)];
    with_cap(shape.softcap, [&](auto cap) {
      score_grad_row(p_row, ds_row, pair.columns, shape.scale, lse,
                     h.scratch[layout.delta + query_index], cap);
    });
    // A cap would bring -infinity back, so what is not seen is hidden behind it.
    mask_row(p_row, pair.columns, keys, pair.first_key, 0.0F);
    mask_row(ds_row, pair.columns, keys, pair.first_key, 0.0F);
  }
  add_to_keys(pair, value_width(h), h.scratch + layout.value_grad, p, output_grad);
  add_to_keys(pair, key_width(h), h.scratch + layout.key_grad, ds, query);
  small_gemm({.c = h.scratch + layout.query_grad + pair.first_query * layout.head,
              .c_stride = layout.head,
              .a = ds,
              .a_row_stride = kKeyBlock,
              .a_column_stride = 1,
              .b = h.scratch + layout.key + pair.first_key * layout.head,
              .b_stride = layout.head,
              .m = pair.num_queries,
              .n = layout.head,
              .k = pair.num_keys,
              .accumulate = true});
}

template <class T>
void pack_head(const Head& h) {
  const AttentionBackward& op = h.op;
  const AttentionLayout& layout = h.layout;
  const AttentionShape& shape = op.shape;
  const int64_t row = h.sequence * shape.query_len;
  const int64_t column = h.head * layout.value_size;
  const T* o = static_cast<const T*>(op.o) + row * op.o_stride + column;
  pack_rows(h.scratch + layout.query, layout.head,
            static_cast<const T*>(op.q) + row * op.q_stride + h.head * shape.head_size, op.q_stride,
            shape.head_size, shape.query_len, layout.queries);
  pack_rows(h.scratch + layout.output_grad, layout.value,
            static_cast<const T*>(op.output_grad) + row * op.o_stride + column, op.o_stride,
            layout.value_size, shape.query_len, layout.queries);
  for (int64_t i = 0; i < shape.query_len; ++i) {
    Vec products{};
    for_each_vec(0, layout.value_size, [&](int64_t e, auto part) {
      products += load(o + i * op.o_stride + e, part) *
                  load(h.scratch + layout.output_grad + i * layout.value + e, part);
    });
    h.scratch[layout.delta + i] = sum(products);
  }
  memset(h.scratch + layout.query_grad, 0,
         static_cast<size_t>(layout.queries * layout.head) * sizeof(float));
}

template <class T>
void backward_head(const Head& h) {
  const AttentionShape& shape = h.op.shape;
  pack_head<T>(h);
  for (int64_t first = 0; first < shape.query_len; first += kQueryBlock) {
    const int64_t count = least(kQueryBlock, shape.query_len - first);
    const KeyRange keys = h.visibility.of(first, count);
    for (int64_t key = keys.begin / kKeyBlock * kKeyBlock; key < keys.end; key += kKeyBlock) {
      const int64_t here = least(kKeyBlock, keys.end - key);
      if (h.visibility.any(first, count, key, key + here))
        backward_tile(h, {first, count, key, here, block_columns(key, keys.end)});
    }
  }
  T* dq = static_cast<T*>(h.op.dq) + h.sequence * shape.query_len * h.op.dq_stride +
          h.head * shape.head_size;
  unpack_rows(dq, h.op.dq_stride, h.scratch + h.layout.query_grad, h.layout.head, shape.head_size,
              shape.query_len);
}

template <class T>
void backward_pair(const AttentionBackward& op, const AttentionLayout& layout, float* scratch,
                   int64_t sequence, int64_t kv_head) {
  const AttentionShape& shape = op.shape;
  const Visibility visibility = visibility_of(op, sequence);
  const int64_t num_keys = visibility.num_keys;
  const int64_t first = sequence * shape.key_len * op.kv_stride;
  // The keys' place holds the values until they are transposed.
  pack_rows(scratch + layout.key, layout.value,
            static_cast<const T*>(op.v) + first + kv_head * layout.value_size, op.kv_stride,
            layout.value_size, num_keys, layout.keys);
  transpose_blocks(scratch + layout.values_transposed, scratch + layout.key, layout.value,
                   layout.keys);
  pack_rows(scratch + layout.key, layout.head,
            static_cast<const T*>(op.k) + first + kv_head * shape.head_size, op.kv_stride,
            shape.head_size, num_keys, layout.keys);
  transpose_blocks(scratch + layout.keys_transposed, scratch + layout.key, layout.head,
                   layout.keys);
  const auto zero = [&](int64_t at, int64_t width) {
    memset(scratch + at, 0, static_cast<size_t>(layout.keys * width) * sizeof(float));
  };
  zero(layout.key_grad, layout.head);
  zero(layout.value_grad, layout.value);

  const int64_t group = shape.heads / shape.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    backward_head<T>({op, layout, scratch, visibility, sequence, head});

  const int64_t first_grad = sequence * shape.key_len * op.dkv_stride;
  unpack_rows(static_cast<T*>(op.dk) + first_grad + kv_head * shape.head_size, op.dkv_stride,
              scratch + layout.key_grad, layout.head, shape.head_size, shape.key_len);
  unpack_rows(static_cast<T*>(op.dv) + first_grad + kv_head * layout.value_size, op.dkv_stride,
              scratch + layout.value_grad, layout.value, layout.value_size, shape.key_len);
}

template <class T>
void backward(const AttentionBackward& op, Range pairs, float* scratch) {
  const AttentionLayout layout = attention_backward_layout(op.shape);
  for (int64_t pair = pairs.begin; pair < pairs.end; ++pair)
    backward_pair<T>(op, layout, scratch, pair / op.shape.kv_heads, pair % op.shape.kv_heads);
}

}  // namespace

void attention_backward(const AttentionBackward& op, Range pairs, float* scratch) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { backward<T>(op, pairs, scratch); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
