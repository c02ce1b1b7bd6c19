// The loss of an indexer and its gradients: a block for each query, query head or key.
#include "attention/indexer_scores.cuh"
#include "attention/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

/// A query's scores in shared memory, and what its loss and their gradients are made of.
struct ScoredChoices {
  const float* scores;
  const float* probabilities;  // not yet divided by `total`
  int count;
  float total;  // of the probabilities
  float max;    // of the scores
  float sum;    // of exp(score - max)
  __device__ float target(int c) const { return probabilities[c] / total; }
};

/// Shared: what score_keys wants, then the scores (C). All threads get the same.
template <class T, class Op>
__device__ ScoredChoices score_choices(const Op& op, std::int64_t token) {
  const AttentionShape& shape = op.indexer.shape;
  const std::int32_t* choices = op.choices + token * op.top_k;
  const std::int64_t first = token / shape.query_len * shape.key_len;
  const int count = count_choices(choices, op.top_k);
  const int thread = static_cast<int>(threadIdx.x);
  float* shared = dynamic_shared<float>();
  float* scores = shared + scoring_floats(shape);
  score_keys<T>(
      op.indexer, token, count, shared, [&](std::int64_t c) { return first + choices[c]; },
      [&](std::int64_t c, float score) { scores[c] = score; });
  ScoredChoices result{scores, op.probabilities + token * op.top_k, count, 0.0F, -kInfinity, 0.0F};
  for (int c = thread; c < count; c += kRowThreads) {
    result.total += result.probabilities[c];
    result.max = fmaxf(result.max, scores[c]);
  }
  result.total = group_reduce<kRowThreads>(result.total, Sum());
  result.max = group_reduce<kRowThreads>(result.max, Max());
  for (int c = thread; c < count; c += kRowThreads) result.sum += expf(scores[c] - result.max);
  result.sum = group_reduce<kRowThreads>(result.sum, Sum());
  return result;
}

/// A block for each query.
template <class T>
__global__ void forward_kernel(const IndexerLossForward op) {
  const std::int64_t token = blockIdx.x;
  const ScoredChoices own = score_choices<T>(op, token);
  const float lse = own.max + logf(own.sum);
  double loss = 0.0;
  if (own.total > 0.0F)
    for (int c = static_cast<int>(threadIdx.x); c < own.count; c += kRowThreads) {
      const float p = own.target(c);
      if (p > 0.0F) loss += double{p} * double{logf(p) - (own.scores[c] - lse)};
    }
  loss = group_reduce<kRowThreads>(loss, Sum());
  if (threadIdx.x == 0) op.loss[token] = static_cast<float>(loss);
}

/// score_grads (B Q, C) = dI times the scale of the scores. A block for each query.
template <class T>
__global__ void score_grad_kernel(const IndexerLossBackward op, float* score_grads) {
  const std::int64_t token = blockIdx.x;
  const ScoredChoices own = score_choices<T>(op, token);
  const float factor = *op.scale * op.indexer.shape.scale;
  float* grads = score_grads + token * op.top_k;
  for (int c = static_cast<int>(threadIdx.x); c < own.count; c += kRowThreads)
    grads[c] = own.total > 0.0F ? (expf(own.scores[c] - own.max) / own.sum - own.target(c)) * factor
                                : 0.0F;
}

/// dq and dweights: a block for each query (x) and head (y). Shared: q (Di), product gradients (C).
template <class T>
__global__ void query_grad_kernel(const IndexerLossBackward op, const float* score_grads) {
  const AttentionShape& shape = op.indexer.shape;
  const std::int64_t token = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const int size = shape.head_size;
  const int first = static_cast<int>(threadIdx.x);
  const std::int32_t* choices = op.choices + token * op.top_k;
  const int count = count_choices(choices, op.top_k);
  const T* keys = index_key<T>(op.indexer, token / shape.query_len * shape.key_len);
  float* query = dynamic_shared<float>();
  float* grads = query + size;
  const float weight = index_weight<T>(op.indexer, token, head);
  hold_row(query, index_query<T>(op.indexer, token, head), size);
  __syncthreads();
  float weight_grad = 0.0F;
  for (int c = first / kWarp; c < count; c += kChosenWarps) {
    const float product = warp_dot(query, keys + choices[c] * op.indexer.k_stride, size);
    if (first % kWarp != 0) continue;
    const float score_grad = score_grads[token * op.top_k + c];
    weight_grad += score_grad * rectified(product);
    grads[c] = product > 0.0F ? score_grad * weight : 0.0F;
  }
  weight_grad = group_reduce<kRowThreads>(weight_grad, Sum());
  if (first == 0)
    static_cast<T*>(op.dweights)[token * op.dweights_stride + head] = from_float<T>(weight_grad);
  __syncthreads();  // the gradients were written by other warps
  T* dq = static_cast<T*>(op.dq) + token * op.dq_stride + std::int64_t{head} * size;
  for (int e = first; e < size; e += kRowThreads) {
    float sum = 0.0F;
    for (int c = 0; c < count; ++c)
      sum += grads[c] * to_float(keys[choices[c] * op.indexer.k_stride + e]);
    dq[e] = from_float<T>(sum);
  }
}

/// dk: a block for each key, whose choosers its warps share. Shared: k (Di) and each warp's sums.
template <class T>
__global__ void key_grad_kernel(const IndexerLossBackward op, const ChosenKeys chosen,
                                const float* score_grads) {
  const int size = op.indexer.shape.head_size;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t row = blockIdx.x;
  float* key = dynamic_shared<float>();
  float* sums = key + size + static_cast<int>(threadIdx.x) / kWarp * size;
  hold_row(key, index_key<T>(op.indexer, row), size);
  for (int e = lane; e < size; e += kWarp) sums[e] = 0.0F;
  __syncthreads();
  for_each_chooser(chosen, row, [&](std::int64_t place) {
    const std::int64_t token = place / op.top_k;
    for (int j = 0; j < op.indexer.shape.heads; ++j) {
      const T* query = index_query<T>(op.indexer, token, j);
      if (!(warp_dot(query, key, size) > 0.0F)) continue;
      const float grad = score_grads[place] * index_weight<T>(op.indexer, token, j);
      for (int e = lane; e < size; e += kWarp) sums[e] += grad * to_float(query[e]);
    }
  });
  __syncthreads();
  store_warp_sums(static_cast<T*>(op.dk) + row * op.dk_stride, key + size, size, 0, size);
}

template <class Op>
LaunchShape scoring_blocks(const Context& context, const Op& op) {
  return indexer_blocks(context, op.indexer, tokens_of(op.indexer), 1,
                        scoring_floats(op.indexer.shape) + op.top_k);
}

}  // namespace

std::int64_t scratch_bytes(const IndexerLossBackward& op) {
  return chosen_keys_scratch_bytes(op.indexer.shape, op.top_k) +
         tokens_of(op.indexer) * op.top_k * size_of(DType::F32);
}

void enqueue(const Context& context, const IndexerLossForward& op) {
  require_indexer(op.indexer, op.top_k);
  with_float_type(op.indexer.dtype, [&](auto type) {
    launch(context, scoring_blocks(context, op), forward_kernel<typename decltype(type)::type>, op);
  });
}

void enqueue(const Context& context, const IndexerLossBackward& op) {
  require_indexer(op.indexer, op.top_k);
  require_scratch(context, scratch_bytes(op));
  const AttentionShape& shape = op.indexer.shape;
  auto* score_grads =
      reinterpret_cast<float*>(context.scratch.data() + chosen_keys_scratch_bytes(shape, op.top_k));
  const ChosenKeys chosen =
      enqueue_chosen_keys(context, shape, op.top_k, op.choices, context.scratch.data());
  with_float_type(op.indexer.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(context, scoring_blocks(context, op), score_grad_kernel<T>, op, score_grads);
    launch(context,
           indexer_blocks(context, op.indexer, tokens_of(op.indexer), shape.heads,
                          shape.head_size + op.top_k),
           query_grad_kernel<T>, op, score_grads);
    launch(context,
           indexer_blocks(context, op.indexer, shape.num_sequences * shape.key_len, 1,
                          std::int64_t{shape.head_size} * (1 + kChosenWarps)),
           key_grad_kernel<T>, op, chosen, score_grads);
  });
}

}  // namespace meshplan::kernels::cuda
