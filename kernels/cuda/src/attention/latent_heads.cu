#include "attention/operators.hpp"
#include "device/rows.cuh"
#include "kernels/attention/latent_heads.hpp"

namespace meshplan::kernels::cuda {

namespace {

/// Where a token's operands lie, in elements.
struct Columns {
  std::int64_t head;     // of queries and keys
  std::int64_t kv_head;  // of kv
  std::int64_t queries;  // all of a token; keys begin there
  std::int64_t values;   // where they begin
  std::int64_t all;
};
__device__ inline Columns columns_of(const LatentShape& s) {
  const std::int64_t head = s.nope_size + s.rope_size;
  const std::int64_t queries = s.queries ? s.heads * head : 0;
  const std::int64_t values = queries + s.heads * head;
  return {head, std::int64_t{s.nope_size} + s.value_size, queries, values,
          values + std::int64_t{s.heads} * s.value_size};
}

/// A block row for each token: every element of qkv is a copy.
template <class T>
__global__ void forward_kernel(const LatentHeadsForward op) {
  const LatentShape& s = op.shape;
  const Columns at = columns_of(s);
  const std::int64_t t = blockIdx.x;
  const T* q = static_cast<const T*>(op.q) + t * at.queries;
  const T* kv = static_cast<const T*>(op.kv) + t * s.heads * at.kv_head;
  const T* k_rope = static_cast<const T*>(op.k_rope) + t * s.rope_size;
  T* qkv = static_cast<T*>(op.qkv) + t * at.all;
  for_each_tile_pack<1>(at.all, [&](std::int64_t i, auto) {
    if (i < at.queries) {
      qkv[i] = q[i];
      return;
    }
    if (i < at.values) {
      const std::int64_t h = (i - at.queries) / at.head;
      const std::int64_t e = (i - at.queries) % at.head;
      qkv[i] = e < s.nope_size ? kv[h * at.kv_head + e] : k_rope[e - s.nope_size];
      return;
    }
    const std::int64_t h = (i - at.values) / s.value_size;
    qkv[i] = kv[h * at.kv_head + s.nope_size + (i - at.values) % s.value_size];
  });
}

/// A block row for each token: elements of dq, then dkv, then dk_rope.
template <class T>
__global__ void backward_kernel(const LatentHeadsBackward op) {
  const LatentShape& s = op.shape;
  const Columns at = columns_of(s);
  const std::int64_t t = blockIdx.x;
  const std::int64_t own = s.heads * at.kv_head;
  const T* dqkv = static_cast<const T*>(op.dqkv) + t * at.all;
  for_each_tile_pack<1>(at.queries + own + s.rope_size, [&](std::int64_t i, auto) {
    if (i < at.queries) {
      static_cast<T*>(op.dq)[t * at.queries + i] = dqkv[i];
      return;
    }
    const std::int64_t j = i - at.queries;
    if (j < own) {
      const std::int64_t h = j / at.kv_head;
      const std::int64_t e = j % at.kv_head;
      static_cast<T*>(op.dkv)[t * own + j] =
          e < s.nope_size ? dqkv[at.queries + h * at.head + e]
                          : dqkv[at.values + h * s.value_size + e - s.nope_size];
      return;
    }
    float sum = 0.0F;
    for (std::int64_t h = 0; h < s.heads; ++h)
      sum += to_float(dqkv[at.queries + h * at.head + s.nope_size + j - own]);
    static_cast<T*>(op.dk_rope)[t * s.rope_size + j - own] = from_float<T>(sum);
  });
}

}  // namespace

void enqueue(const Context& context, const LatentHeadsForward& op) {
  with_float_type(op.dtype, [&](auto type) {
    launch(context, tile_shape(op.shape.tokens, op.shape.columns(), 1),
           forward_kernel<typename decltype(type)::type>, op);
  });
}

void enqueue(const Context& context, const LatentHeadsBackward& op) {
  with_float_type(op.dtype, [&](auto type) {
    launch(context,
           tile_shape(op.shape.tokens,
                      op.shape.query_columns() + op.shape.kv_columns() + op.shape.rope_size, 1),
           backward_kernel<typename decltype(type)::type>, op);
  });
}

}  // namespace meshplan::kernels::cuda
