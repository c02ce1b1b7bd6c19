// A block for each query, or for each key: simple kernels whose sums have one order. They gather
// rows of k and v, a warp each, and use no matrix units.
#include "attention/attention_launch.cuh"
#include "attention/chosen_rows.cuh"
#include "attention/operators.hpp"
#include "kernels/attention/sparse_attention.hpp"

namespace meshplan::kernels::cuda {

namespace {

/// One query of a sequence and its choices.
template <class T, class Op>
struct Chooser {
  const Op& op;
  std::int64_t token;
  std::int64_t sequence;
  const std::int32_t* choices;
  int count;
  int value_size;
  __device__ Chooser(const Op& operation, std::int64_t t)
      : op(operation),
        token(t),
        sequence(t / operation.shape.query_len),
        choices(operation.choices + t * operation.top_k),
        count(count_choices(choices, operation.top_k)),
        value_size(value_size_of(operation.shape)) {}
  __device__ const T* key(int c, int kv_head) const {
    const std::int64_t row = sequence * op.shape.key_len + choices[c];
    return static_cast<const T*>(op.k) + row * op.kv_stride +
           std::int64_t{kv_head} * op.shape.head_size;
  }
  __device__ const T* value(int c, int kv_head) const {
    const std::int64_t row = sequence * op.shape.key_len + choices[c];
    return static_cast<const T*>(op.v) + row * op.kv_stride + std::int64_t{kv_head} * value_size;
  }
  __device__ const T* query(int head) const {
    return static_cast<const T*>(op.q) + token * op.q_stride +
           std::int64_t{head} * op.shape.head_size;
  }
  __device__ std::int64_t output(int head) const {
    return token * op.o_stride + std::int64_t{head} * value_size;
  }
  __device__ std::int64_t statistic(int head) const {
    return statistic_index(op.shape, op.lse_stride, sequence, head,
                           token - sequence * op.shape.query_len);
  }
};

/// Scores become probabilities, each by the thread that owns the choice. @returns their lse
__device__ inline float softmax_choices(float* scores, int count) {
  const int first = static_cast<int>(threadIdx.x);
  float max = -kInfinity;
  for (int c = first; c < count; c += kRowThreads) max = fmaxf(max, scores[c]);
  max = group_reduce<kRowThreads>(max, Max());
  float sum = 0.0F;
  for (int c = first; c < count; c += kRowThreads) sum += scores[c] = expf(scores[c] - max);
  sum = group_reduce<kRowThreads>(sum, Sum());
  for (int c = first; c < count; c += kRowThreads) scores[c] /= sum;
  return count > 0 ? max + logf(sum) : -kInfinity;
}

/// A block for each query, heads in turn. Shared: its query (E) and scores (C).
template <class T>
__global__ void forward_kernel(const SparseAttentionForward op) {
  const Chooser<T, SparseAttentionForward> own(op, blockIdx.x);
  const int size = op.shape.head_size;
  float* query = dynamic_shared<float>();
  float* scores = query + size;
  const int first = static_cast<int>(threadIdx.x);
  for (int head = 0; head < op.shape.heads; ++head) {
    const int kv_head = head / (op.shape.heads / op.shape.kv_heads);
    __syncthreads();  // the last head's are no longer read
    hold_row(query, own.query(head), size);
    __syncthreads();
    for (int c = first / kWarp; c < own.count; c += kChosenWarps) {
      const float score = warp_dot(query, own.key(c, kv_head), size) * op.shape.scale;
      if (first % kWarp == 0) scores[c] = score;
    }
    __syncthreads();
    const float lse = softmax_choices(scores, own.count);
    if (first == 0) op.lse[own.statistic(head)] = lse;
    if (op.probabilities != nullptr)
      for (int c = first; c < op.top_k; c += kRowThreads) {
        float* sum = op.probabilities + own.token * op.top_k + c;
        *sum = (head > 0 ? *sum : 0.0F) + (c < own.count ? scores[c] : 0.0F);
      }
    __syncthreads();
    for (int e = first; e < own.value_size; e += kRowThreads) {
      float sum = 0.0F;
      for (int c = 0; c < own.count; ++c) sum += scores[c] * to_float(own.value(c, kv_head)[e]);
      static_cast<T*>(op.o)[own.output(head) + e] = from_float<T>(sum);
    }
  }
}

/// dq and delta (B Q, H), the row sums of do * o. Shared: q (E), do (Ev) and score gradients (C).
template <class T>
__global__ void query_grad_kernel(const SparseAttentionBackward op, float* delta) {
  const Chooser<T, SparseAttentionBackward> own(op, blockIdx.x);
  const int size = op.shape.head_size;
  float* query = dynamic_shared<float>();
  float* output_grad = query + size;
  float* score_grads = output_grad + own.value_size;
  const int first = static_cast<int>(threadIdx.x);
  for (int head = 0; head < op.shape.heads; ++head) {
    const int kv_head = head / (op.shape.heads / op.shape.kv_heads);
    const T* o = static_cast<const T*>(op.o) + own.output(head);
    __syncthreads();  // the last head's are no longer read
    hold_row(query, own.query(head), size);
    hold_row(output_grad, static_cast<const T*>(op.output_grad) + own.output(head), own.value_size);
    __syncthreads();
    float row_sum = 0.0F;
    for (int e = first; e < own.value_size; e += kRowThreads)
      row_sum += output_grad[e] * to_float(o[e]);
    row_sum = group_reduce<kRowThreads>(row_sum, Sum());
    if (first == 0) delta[own.token * op.shape.heads + head] = row_sum;
    const float lse = op.lse[own.statistic(head)];
    for (int c = first / kWarp; c < own.count; c += kChosenWarps) {
      const float score = warp_dot(query, own.key(c, kv_head), size) * op.shape.scale;
      const float dp = warp_dot(output_grad, own.value(c, kv_head), own.value_size);
      if (first % kWarp == 0) score_grads[c] = expf(score - lse) * (dp - row_sum) * op.shape.scale;
    }
    __syncthreads();
    T* dq = static_cast<T*>(op.dq) + own.token * op.dq_stride + std::int64_t{head} * size;
    for (int e = first; e < size; e += kRowThreads) {
      float sum = 0.0F;
      for (int c = 0; c < own.count; ++c) sum += score_grads[c] * to_float(own.key(c, kv_head)[e]);
      dq[e] = from_float<T>(sum);
    }
  }
}

/// dk and dv: a block for each key (x) and key head (y), whose choosers its warps share. Shared: k
/// (E), v (Ev), and each warp's sums (E + Ev).
template <class T>
__global__ void key_grad_kernel(const SparseAttentionBackward op, const ChosenKeys chosen,
                                const float* delta) {
  const AttentionShape& shape = op.shape;
  const int size = shape.head_size;
  const int value_size = value_size_of(shape);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = shape.heads / shape.kv_heads;
  const std::int64_t row = blockIdx.x;
  const std::int64_t key_column = std::int64_t{kv_head} * size;
  const std::int64_t value_column = std::int64_t{kv_head} * value_size;
  float* key = dynamic_shared<float>();
  float* value = key + size;
  float* all_sums = value + value_size;
  float* sums = all_sums + static_cast<int>(threadIdx.x) / kWarp * (size + value_size);
  hold_row(key, static_cast<const T*>(op.k) + row * op.kv_stride + key_column, size);
  hold_row(value, static_cast<const T*>(op.v) + row * op.kv_stride + value_column, value_size);
  for (int e = lane; e < size + value_size; e += kWarp) sums[e] = 0.0F;
  __syncthreads();
  for_each_chooser(chosen, row, [&](std::int64_t place) {
    const Chooser<T, SparseAttentionBackward> by(op, place / op.top_k);
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const T* query = by.query(head);
      const T* output_grad = static_cast<const T*>(op.output_grad) + by.output(head);
      const float score = warp_dot(query, key, size) * shape.scale;
      const float dp = warp_dot(output_grad, value, value_size);
      const float p = expf(score - op.lse[by.statistic(head)]);
      const float ds = p * (dp - delta[by.token * shape.heads + head]) * shape.scale;
      for (int e = lane; e < size; e += kWarp) sums[e] += ds * to_float(query[e]);
      for (int e = lane; e < value_size; e += kWarp) sums[size + e] += p * to_float(output_grad[e]);
    }
  });
  __syncthreads();
  const int stride = size + value_size;
  store_warp_sums(static_cast<T*>(op.dk) + row * op.dkv_stride + key_column, all_sums, stride, 0,
                  size);
  store_warp_sums(static_cast<T*>(op.dv) + row * op.dkv_stride + value_column, all_sums, stride,
                  size, value_size);
}

template <class Op>
void require_sparse(const Op& op) {
  require_float(op.dtype);
  require_invariant(op.shape.heads > 0 && op.shape.kv_heads > 0 && op.shape.head_size > 0,
                    "attention has heads");
  require_invariant(op.shape.heads % op.shape.kv_heads == 0,
                    "query heads are a multiple of key heads");
  require_invariant(op.top_k > 0 && op.shape.softcap == 0.0F,
                    "sparse attention has choices and no soft cap");
}

/// Grid (x, y) of blocks of kRowThreads with `floats` of dynamic shared memory.
LaunchShape blocks_of(const Context& context, const AttentionShape& shape, std::int64_t x, int y,
                      std::int64_t floats) {
  const std::int64_t bytes = floats * size_of(DType::F32);
  require_shared_memory(context, bytes, shape.head_size);
  return {.grid = dim3(static_cast<unsigned>(x), static_cast<unsigned>(y)),
          .block = dim3(kRowThreads),
          .shared_bytes = static_cast<std::size_t>(bytes)};
}

}  // namespace

std::int64_t scratch_bytes(const SparseAttentionBackward& op) {
  return chosen_keys_scratch_bytes(op.shape, op.top_k) +
         op.shape.num_sequences * op.shape.query_len * op.shape.heads * size_of(DType::F32);
}

void enqueue(const Context& context, const SparseAttentionForward& op) {
  require_sparse(op);
  with_float_type(op.dtype, [&](auto type) {
    launch(context,
           blocks_of(context, op.shape, op.shape.num_sequences * op.shape.query_len, 1,
                     op.shape.head_size + op.top_k),
           forward_kernel<typename decltype(type)::type>, op);
  });
}

void enqueue(const Context& context, const SparseAttentionBackward& op) {
  require_sparse(op);
  require_scratch(context, scratch_bytes(op));
  const AttentionShape& shape = op.shape;
  const std::int64_t row = shape.head_size + shape.value_size();
  auto* delta =
      reinterpret_cast<float*>(context.scratch.data() + chosen_keys_scratch_bytes(shape, op.top_k));
  const ChosenKeys chosen =
      enqueue_chosen_keys(context, shape, op.top_k, op.choices, context.scratch.data());
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(context,
           blocks_of(context, shape, shape.num_sequences * shape.query_len, 1, row + op.top_k),
           query_grad_kernel<T>, op, delta);
    launch(context,
           blocks_of(context, shape, shape.num_sequences * shape.key_len, shape.kv_heads,
                     row * (1 + kChosenWarps)),
           key_grad_kernel<T>, op, chosen, delta);
  });
}

}  // namespace meshplan::kernels::cuda
