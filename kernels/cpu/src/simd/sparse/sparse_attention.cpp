#include "attention/sparse_layout.hpp"
#include "simd/attention_tiles.hpp"
#include "simd/kernels.hpp"
#include "simd/sparse/chosen_rows.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

/// One query head of one sequence, whose keys and values are packed.
template <class Op>
struct SparseHead {
  const Op& op;
  const SparseAttentionLayout& layout;
  float* scratch;
  int64_t sequence;
  int64_t head;
};

template <class T, class Op>
void pack_keys(const Op& op, const SparseAttentionLayout& layout, float* scratch, int64_t sequence,
               int64_t kv_head) {
  const AttentionShape& shape = op.shape;
  const int64_t first = sequence * shape.key_len * op.kv_stride;
  pack_rows(scratch + layout.keys, layout.head,
            static_cast<const T*>(op.k) + first + kv_head * shape.head_size, op.kv_stride,
            shape.head_size, shape.key_len, shape.key_len);
  pack_rows(scratch + layout.values, layout.value,
            static_cast<const T*>(op.v) + first + kv_head * layout.value_size, op.kv_stride,
            layout.value_size, shape.key_len, shape.key_len);
}

template <class T, class Op>
void pack_query(const SparseHead<Op>& h, int64_t token) {
  const int64_t size = h.op.shape.head_size;
  pack_rows(h.scratch + h.layout.query, h.layout.head,
            static_cast<const T*>(h.op.q) + token * h.op.q_stride + h.head * size, h.op.q_stride,
            size, 1, 1);
}

template <class T>
void forward_query(const SparseHead<SparseAttentionForward>& h, int64_t token) {
  const SparseAttentionForward& op = h.op;
  const SparseAttentionLayout& layout = h.layout;
  const AttentionShape& shape = op.shape;
  const int32_t* choices = op.choices + token * op.top_k;
  const int64_t count = count_choices(choices, op.top_k);
  float* scores = h.scratch + layout.scores;
  float* output = h.scratch + layout.output;
  pack_query<T>(h, token);
  dot_chosen(scores, h.scratch + layout.query, h.scratch + layout.keys, layout.head, choices,
             count);
  multiply(scores, count, shape.scale);
  const float largest = largest_of(scores, count);
  const float total = exponentiate(scores, count, largest);
  multiply(scores, count, 1.0F / total);
  if (op.probabilities != nullptr) {
    float* sums = op.probabilities + token * op.top_k;
    for_each_vec(0, count, [&](int64_t c, auto part) {
      store(sums + c, load(sums + c, part) + load(scores + c, part), part);
    });
  }
  memset(output, 0, static_cast<size_t>(layout.value) * sizeof(float));
  add_chosen(output, scores, h.scratch + layout.values, layout.value, choices, count);
  const int64_t size = layout.value_size;
  unpack_rows(static_cast<T*>(op.o) + token * op.o_stride + h.head * size, op.o_stride, output,
              layout.value, size, 1);
  const int64_t query = token - h.sequence * shape.query_len;
  op.lse[statistic_index(shape, op.lse_stride, h.sequence, h.head, query)] =
      count > 0 ? largest + __builtin_logf(total) : -__builtin_inff();
}

/// Tokens of one sequence. A head's keys and values stay in cache while all of its queries pass.
template <class T>
void forward_tokens(const SparseAttentionForward& op, const SparseAttentionLayout& layout,
                    float* scratch, int64_t sequence, Range tokens) {
  if (op.probabilities != nullptr)
    memset(op.probabilities + tokens.begin * op.top_k, 0,
           static_cast<size_t>((tokens.end - tokens.begin) * op.top_k) * sizeof(float));
  const int64_t group = op.shape.heads / op.shape.kv_heads;
  for (int64_t head = 0; head < op.shape.heads; ++head) {
    if (head % group == 0) pack_keys<T>(op, layout, scratch, sequence, head / group);
    const SparseHead<SparseAttentionForward> h{op, layout, scratch, sequence, head};
    for (int64_t token = tokens.begin; token < tokens.end; ++token) forward_query<T>(h, token);
  }
}

template <class T>
void forward(const SparseAttentionForward& op, Range tokens, float* scratch) {
  const SparseAttentionLayout layout = sparse_attention_layout(op.shape, op.top_k, false);
  for (int64_t first = tokens.begin; first < tokens.end;) {
    const int64_t sequence = first / op.shape.query_len;
    const int64_t end = least(tokens.end, (sequence + 1) * op.shape.query_len);
    forward_tokens<T>(op, layout, scratch, sequence, {first, end});
    first = end;
  }
}

/// From scores and dp to probabilities p and ds = p (dp - delta) scale.
MESHPLAN_INLINE void score_grads(float* p, float* ds, int64_t count, float scale, float lse,
                                 float delta) {
  for_each_vec(0, count, [&](int64_t c, auto part) {
    const Vec probability = exp(load(p + c, part) * scale - lse);
    store(p + c, probability, part);
    store(ds + c, probability * (load(ds + c, part) - delta) * scale, part);
  });
}

/// Adds what one query's choices give to dq, dk and dv. lse is known, so that a few rows of keys
/// and values come to the cache once for all five products.
void backward_choices(const SparseHead<SparseAttentionBackward>& h, const int32_t* choices,
                      int64_t count, float lse, float delta) {
  constexpr int64_t kRows = 16;
  const SparseAttentionLayout& layout = h.layout;
  const float* query = h.scratch + layout.query;
  const float* output_grad = h.scratch + layout.output_grad;
  const float* keys = h.scratch + layout.keys;
  float p[kRows];
  float ds[kRows];
  for (int64_t c = 0; c < count; c += kRows) {
    const int64_t here = least(kRows, count - c);
    dot_chosen(p, query, keys, layout.head, choices + c, here);
    dot_chosen(ds, output_grad, h.scratch + layout.values, layout.value, choices + c, here);
    score_grads(p, ds, here, h.op.shape.scale, lse, delta);
    add_chosen(h.scratch + layout.query_grad, ds, keys, layout.head, choices + c, here);
    add_to_chosen(h.scratch + layout.key_grad, ds, query, layout.head, choices + c, here);
    add_to_chosen(h.scratch + layout.value_grad, p, output_grad, layout.value, choices + c, here);
  }
}

template <class T>
void backward_query(const SparseHead<SparseAttentionBackward>& h, int64_t token) {
  const SparseAttentionBackward& op = h.op;
  const SparseAttentionLayout& layout = h.layout;
  const AttentionShape& shape = op.shape;
  const int64_t size = layout.value_size;
  const int32_t* choices = op.choices + token * op.top_k;
  float* output_grad = h.scratch + layout.output_grad;
  float* query_grad = h.scratch + layout.query_grad;
  const int64_t row = token * op.o_stride + h.head * size;
  pack_query<T>(h, token);
  pack_rows(output_grad, layout.value, static_cast<const T*>(op.output_grad) + row, op.o_stride,
            size, 1, 1);
  Vec delta{};
  for_each_vec(0, size, [&](int64_t e, auto part) {
    delta += load(static_cast<const T*>(op.o) + row + e, part) * load(output_grad + e, part);
  });
  memset(query_grad, 0, static_cast<size_t>(layout.head) * sizeof(float));
  const int64_t index = statistic_index(shape, op.lse_stride, h.sequence, h.head,
                                        token - h.sequence * shape.query_len);
  backward_choices(h, choices, count_choices(choices, op.top_k), op.lse[index], sum(delta));
  unpack_rows(static_cast<T*>(op.dq) + token * op.dq_stride + h.head * shape.head_size,
              op.dq_stride, query_grad, layout.head, shape.head_size, 1);
}

template <class T>
void backward_pair(const SparseAttentionBackward& op, const SparseAttentionLayout& layout,
                   float* scratch, int64_t sequence, int64_t kv_head) {
  const AttentionShape& shape = op.shape;
  const int64_t size = layout.value_size;
  pack_keys<T>(op, layout, scratch, sequence, kv_head);
  const auto zero = [&](int64_t at, int64_t width) {
    memset(scratch + at, 0, static_cast<size_t>(shape.key_len * width) * sizeof(float));
  };
  zero(layout.key_grad, layout.head);
  zero(layout.value_grad, layout.value);
  const int64_t group = shape.heads / shape.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const SparseHead<SparseAttentionBackward> h{op, layout, scratch, sequence, head};
    for (int64_t query = 0; query < shape.query_len; ++query)
      backward_query<T>(h, sequence * shape.query_len + query);
  }
  const int64_t first = sequence * shape.key_len * op.dkv_stride;
  unpack_rows(static_cast<T*>(op.dk) + first + kv_head * shape.head_size, op.dkv_stride,
              scratch + layout.key_grad, layout.head, shape.head_size, shape.key_len);
  unpack_rows(static_cast<T*>(op.dv) + first + kv_head * size, op.dkv_stride,
              scratch + layout.value_grad, layout.value, size, shape.key_len);
}

template <class T>
void backward(const SparseAttentionBackward& op, Range pairs, float* scratch) {
  const SparseAttentionLayout layout = sparse_attention_layout(op.shape, op.top_k, true);
  for (int64_t pair = pairs.begin; pair < pairs.end; ++pair)
    backward_pair<T>(op, layout, scratch, pair / op.shape.kv_heads, pair % op.shape.kv_heads);
}

}  // namespace

void sparse_attention_forward(const SparseAttentionForward& op, Range tokens, float* scratch) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { forward<T>(op, tokens, scratch); });
}
void sparse_attention_backward(const SparseAttentionBackward& op, Range pairs, float* scratch) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { backward<T>(op, pairs, scratch); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
