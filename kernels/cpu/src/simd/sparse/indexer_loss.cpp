#include "attention/sparse_layout.hpp"
#include "simd/kernels.hpp"
#include "simd/sparse/chosen_rows.hpp"
#include "simd/sparse/indexer_tiles.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

/// One query and its choices.
struct ChosenQuery {
  const Indexer& indexer;
  const IndexerLossLayout& layout;
  float* scratch;
  int64_t token;
  const int32_t* choices;
  int64_t count;
  float* part(int64_t offset) const { return scratch + offset; }
};

/// Keys of choices [first, first + kKeyBlock) as fp32 rows, zeros where there is none.
template <class T>
void gather_keys(const ChosenQuery& q, int64_t first) {
  const AttentionShape& shape = q.indexer.shape;
  const int64_t sequence = q.token / shape.query_len;
  const T* k = static_cast<const T*>(q.indexer.k) + sequence * shape.key_len * q.indexer.k_stride;
  const int64_t here = least(kKeyBlock, q.count - first);
  float* to = q.part(q.layout.key);
  for (int64_t i = 0; i < here; ++i)
    pack_rows(to + i * q.layout.head, q.layout.head, k + q.choices[first + i] * q.indexer.k_stride,
              q.indexer.k_stride, shape.head_size, 1, i + 1 < here ? 1 : kKeyBlock - i);
}

/// The products of all heads with the keys of choices [first, first + kKeyBlock).
template <class T>
void multiply_chosen(const ChosenQuery& q, int64_t first, float* products) {
  gather_keys<T>(q, first);
  transpose_blocks(q.part(q.layout.key_transposed), q.part(q.layout.key), q.layout.head, kKeyBlock);
  multiply_block(q.indexer.shape, products, q.part(q.layout.query), q.layout.head,
                 q.part(q.layout.key_transposed), block_columns(first, q.count));
}

MESHPLAN_INLINE float* products_of(const ChosenQuery& q, int64_t first) {
  return q.part(q.layout.products) + first * q.indexer.shape.heads;
}

/// Products of all choices, and their scores.
template <class T>
void score_choices(const ChosenQuery& q) {
  pack_index_query<T>(q.indexer, q.part(q.layout.query), q.part(q.layout.weights), q.layout.head,
                      q.token);
  for (int64_t first = 0; first < q.count; first += kKeyBlock) {
    multiply_chosen<T>(q, first, products_of(q, first));
    sum_heads(q.indexer.shape, q.part(q.layout.scores) + first, products_of(q, first),
              q.part(q.layout.weights), block_columns(first, q.count));
  }
}

MESHPLAN_INLINE float sum_of(const float* x, int64_t count) {
  Vec sums{};
  for_each_vec(0, count, [&](int64_t i, auto part) { sums += load(x + i, part); });
  return sum(sums);
}

template <class Op>
MESHPLAN_INLINE ChosenQuery chosen_query(const Op& op, const IndexerLossLayout& layout,
                                         float* scratch, int64_t token) {
  const int32_t* choices = op.choices + token * op.top_k;
  return {op.indexer, layout, scratch, token, choices, count_choices(choices, op.top_k)};
}

template <class T>
float loss_of(const IndexerLossForward& op, const IndexerLossLayout& layout, float* scratch,
              int64_t token) {
  const ChosenQuery q = chosen_query(op, layout, scratch, token);
  const float* probabilities = op.probabilities + token * op.top_k;
  const float total = sum_of(probabilities, q.count);
  if (!(total > 0.0F)) return 0.0F;
  score_choices<T>(q);
  float* scores = q.part(layout.scores);
  const float largest = largest_of(scores, q.count);
  Vec exponentials{};
  for_each_vec(0, q.count, [&](int64_t c, auto part) {
    exponentials += select(exp(load(scores + c, part) - largest), Vec{}, part);
  });
  const float lse = largest + __builtin_logf(sum(exponentials));
  double loss = 0.0;
  for (int64_t c = 0; c < q.count; ++c) {
    const float p = probabilities[c] / total;
    if (p > 0.0F) loss += double{p} * double{__builtin_logf(p) - (scores[c] - lse)};
  }
  return static_cast<float>(loss);
}

/// dI scale of every choice, at `score_grads`: what the products' gradients are made of.
template <class T>
void grade_scores(const IndexerLossBackward& op, const ChosenQuery& q, float* score_grads) {
  const float* probabilities = op.probabilities + q.token * op.top_k;
  const float total = sum_of(probabilities, q.count);
  if (!(total > 0.0F)) {
    memset(score_grads, 0, static_cast<size_t>(q.count) * sizeof(float));
    return;
  }
  score_choices<T>(q);
  float* scores = q.part(q.layout.scores);
  const float sum = exponentiate(scores, q.count, largest_of(scores, q.count));
  const float factor = *op.scale * op.indexer.shape.scale;
  for_each_vec(0, q.count, [&](int64_t c, auto part) {
    const Vec p = load(probabilities + c, part) / total;
    store(score_grads + c, (load(scores + c, part) / sum - p) * factor, part);
  });
}

/// Gradients of the products of a block of choices, in place; adds to those of the weights, which
/// may be null. `score_grads` has zeros up to whole vectors.
MESHPLAN_INLINE void grade_products(const ChosenQuery& q, float* products, const float* score_grads,
                                    int64_t columns, float* weight_grads) {
  const float* weights = q.part(q.layout.weights);
  for (int64_t j = 0; j < q.indexer.shape.heads; ++j) {
    float* row = products + j * kKeyBlock;
    Vec weight_grad{};
    for (int64_t i = 0; i < columns; i += kLanes) {
      const Vec product = load(row + i);
      const Vec grad = load(score_grads + i);
      weight_grad += grad * rectified(product);
      store(row + i, product > 0.0F ? grad * weights[j] : Vec{});
    }
    if (weight_grads != nullptr) weight_grads[j] += sum(weight_grad);
  }
}

/// A block's score gradients in the scratch of scores, with zeros up to whole vectors.
MESHPLAN_INLINE const float* padded_grads(const ChosenQuery& q, const float* score_grads,
                                          int64_t first, int64_t columns) {
  float* padded = q.part(q.layout.scores);
  for (int64_t i = 0; i < columns; ++i)
    padded[i] = first + i < q.count ? score_grads[first + i] : 0.0F;
  return padded;
}

template <class T>
void query_grad(const IndexerLossBackward& op, const IndexerLossLayout& layout, float* scratch,
                int64_t token, float* score_grads) {
  const ChosenQuery q = chosen_query(op, layout, scratch, token);
  const AttentionShape& shape = op.indexer.shape;
  grade_scores<T>(op, q, score_grads);
  float* grad = q.part(layout.query_grad);
  float* weight_grads = q.part(layout.weight_grads);
  memset(grad, 0, static_cast<size_t>(shape.heads * layout.head) * sizeof(float));
  memset(weight_grads, 0, static_cast<size_t>(shape.heads) * sizeof(float));
  const bool any = sum_of(op.probabilities + token * op.top_k, q.count) > 0.0F;
  for (int64_t first = 0; any && first < q.count; first += kKeyBlock) {
    const int64_t columns = block_columns(first, q.count);
    float* products = products_of(q, first);
    gather_keys<T>(q, first);
    grade_products(q, products, padded_grads(q, score_grads, first, columns), columns,
                   weight_grads);
    small_gemm({.c = grad,
                .c_stride = layout.head,
                .a = products,
                .a_row_stride = kKeyBlock,
                .a_column_stride = 1,
                .b = q.part(layout.key),
                .b_stride = layout.head,
                .m = shape.heads,
                .n = layout.head,
                .k = columns,
                .accumulate = true});
  }
  unpack_rows(static_cast<T*>(op.dq) + token * op.dq_stride, shape.head_size, grad, layout.head,
              shape.head_size, shape.heads);
  unpack_rows(static_cast<T*>(op.dweights) + token * op.dweights_stride, op.dweights_stride,
              weight_grads, layout.head, shape.heads, 1);
}

/// The first choice that is `key` or a later one.
MESHPLAN_INLINE int64_t first_choice(const int32_t* choices, int64_t count, int64_t key) {
  int64_t low = 0;
  for (int64_t high = count; low < high;) {
    const int64_t middle = (low + high) / 2;
    if (choices[middle] >= key)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Adds what one query gives to the keys [first_key, first_key + kGradientKeys).
template <class T>
void add_to_key_grad(const ChosenQuery& q, int64_t first_key, const float* score_grads) {
  const IndexerLossLayout& layout = q.layout;
  const AttentionShape& shape = q.indexer.shape;
  float* products = q.part(layout.products);
  float* rows_grad = q.part(layout.rows_grad);
  pack_index_query<T>(q.indexer, q.part(layout.query), q.part(layout.weights), layout.head,
                      q.token);
  for (int64_t first = 0; first < q.count; first += kKeyBlock) {
    const int64_t columns = block_columns(first, q.count);
    const int64_t here = least(kKeyBlock, q.count - first);
    multiply_chosen<T>(q, first, products);
    grade_products(q, products, padded_grads(q, score_grads, first, columns), columns, nullptr);
    small_gemm({.c = rows_grad,
                .c_stride = layout.head,
                .a = products,
                .a_row_stride = 1,
                .a_column_stride = kKeyBlock,
                .b = q.part(layout.query),
                .b_stride = layout.head,
                .m = here,
                .n = layout.head,
                .k = shape.heads,
                .accumulate = false});
    for (int64_t i = 0; i < here; ++i) {
      float* to = q.part(layout.key_grad) + (q.choices[first + i] - first_key) * layout.head;
      for (int64_t e = 0; e < layout.head; e += kLanes)
        store(to + e, load(to + e) + load(rows_grad + i * layout.head + e));
    }
  }
}

/// dk of the keys [first_key, first_key + kGradientKeys) of a sequence: queries ascending.
template <class T>
void key_grad(const IndexerLossBackward& op, const IndexerLossLayout& layout, float* scratch,
              int64_t sequence, int64_t first_key, const float* score_grads) {
  const AttentionShape& shape = op.indexer.shape;
  memset(scratch + layout.key_grad, 0,
         static_cast<size_t>(kGradientKeys * layout.head) * sizeof(float));
  for (int64_t query = 0; query < shape.query_len; ++query) {
    const int64_t token = sequence * shape.query_len + query;
    ChosenQuery q = chosen_query(op, layout, scratch, token);
    const int64_t begin = first_choice(q.choices, q.count, first_key);
    q.count = first_choice(q.choices, q.count, first_key + kGradientKeys) - begin;
    q.choices += begin;
    if (q.count > 0) add_to_key_grad<T>(q, first_key, score_grads + token * op.top_k + begin);
  }
  const int64_t row = sequence * shape.key_len + first_key;
  unpack_rows(static_cast<T*>(op.dk) + row * op.dk_stride, op.dk_stride, scratch + layout.key_grad,
              layout.head, shape.head_size, least(kGradientKeys, shape.key_len - first_key));
}

}  // namespace

void indexer_loss_forward(const IndexerLossForward& op, Range tokens, float* scratch) {
  const IndexerLossLayout layout = indexer_loss_layout(op.indexer.shape, op.top_k, false);
  with_type(op.indexer.dtype, [&]<class T>(T* /*type*/) {
    for (int64_t token = tokens.begin; token < tokens.end; ++token)
      op.loss[token] = loss_of<T>(op, layout, scratch, token);
  });
}

void indexer_loss_query_grad(const IndexerLossBackward& op, Range tokens, float* scratch,
                             float* score_grads) {
  const IndexerLossLayout layout = indexer_loss_layout(op.indexer.shape, op.top_k, true);
  with_type(op.indexer.dtype, [&]<class T>(T* /*type*/) {
    for (int64_t token = tokens.begin; token < tokens.end; ++token)
      query_grad<T>(op, layout, scratch, token, score_grads + token * op.top_k);
  });
}

void indexer_loss_key_grad(const IndexerLossBackward& op, Range blocks, float* scratch,
                           const float* score_grads) {
  const IndexerLossLayout layout = indexer_loss_layout(op.indexer.shape, op.top_k, true);
  const int64_t of_sequence = (op.indexer.shape.key_len + kGradientKeys - 1) / kGradientKeys;
  with_type(op.indexer.dtype, [&]<class T>(T* /*type*/) {
    for (int64_t block = blocks.begin; block < blocks.end; ++block)
      key_grad<T>(op, layout, scratch, block / of_sequence, block % of_sequence * kGradientKeys,
                  score_grads);
  });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
