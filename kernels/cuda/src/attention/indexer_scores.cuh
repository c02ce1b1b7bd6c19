// The scores that an indexer gives keys of one query, by a block of kRowThreads.
#pragma once

#include "attention/attention_launch.cuh"
#include "attention/chosen_rows.cuh"
#include "kernels/attention/indexer.hpp"

namespace meshplan::kernels::cuda {

constexpr int kScoredKeys = 64;                         // at once
constexpr int kHeadGroups = kRowThreads / kScoredKeys;  // threads that share a key's heads
constexpr int kPartialScores = kHeadGroups * kScoredKeys;

/// Shared memory of score_keys: queries (Hi, Di), weights (Hi), keys (kScoredKeys, Di + 1: rows
/// meet different banks), partial scores.
constexpr std::int64_t scoring_floats(const AttentionShape& shape) {
  return std::int64_t{shape.heads} * (shape.head_size + 1) +
         std::int64_t{kScoredKeys} * (shape.head_size + 1) + kPartialScores;
}

/// w relu(product) without the weight; a NaN stays.
__device__ inline float rectified(float product) {
  return product < 0.0F ? 0.0F : product;
}

template <class T>
__device__ const T* index_query(const Indexer& indexer, std::int64_t token, int head) {
  return static_cast<const T*>(indexer.q) + token * indexer.q_stride +
         std::int64_t{head} * indexer.shape.head_size;
}
template <class T>
__device__ float index_weight(const Indexer& indexer, std::int64_t token, int head) {
  return to_float(static_cast<const T*>(indexer.weights)[token * indexer.weights_stride + head]);
}
template <class T>
__device__ const T* index_key(const Indexer& indexer, std::int64_t row) {
  return static_cast<const T*>(indexer.k) + row * indexer.k_stride;
}

/// One thread's part of the score of a key: every kHeadGroups-th head, from its group's own on.
__device__ inline float partial_score(const float* queries, const float* weights, const float* key,
                                      int heads, int size) {
  float sum = 0.0F;
  for (int j = static_cast<int>(threadIdx.x) / kScoredKeys; j < heads; j += kHeadGroups) {
    float product = 0.0F;
    for (int e = 0; e < size; ++e) product += queries[j * size + e] * key[e];
    sum += weights[j] * rectified(product);
  }
  return sum;
}

/// emit(i, score) by one thread for each of `count` keys, whose rows are row_of(i).
template <class T, class RowOf, class Emit>
__device__ void score_keys(const Indexer& indexer, std::int64_t token, std::int64_t count,
                           float* shared, const RowOf& row_of, const Emit& emit) {
  const int heads = indexer.shape.heads;
  const int size = indexer.shape.head_size;
  const int thread = static_cast<int>(threadIdx.x);
  float* queries = shared;
  float* weights = queries + heads * size;
  float* keys = weights + heads;
  float* partials = keys + kScoredKeys * (size + 1);
  __syncthreads();  // an earlier query may still be read
  hold_row(queries, index_query<T>(indexer, token, 0), heads * size);
  for (int j = thread; j < heads; j += kRowThreads) weights[j] = index_weight<T>(indexer, token, j);
  for (std::int64_t first = 0; first < count; first += kScoredKeys) {
    for (int i = thread; i < kScoredKeys * size; i += kRowThreads) {
      const std::int64_t key = first + i / size;
      keys[i / size * (size + 1) + i % size] =
          key < count ? to_float(index_key<T>(indexer, row_of(key))[i % size]) : 0.0F;
    }
    __syncthreads();
    partials[thread] =
        partial_score(queries, weights, keys + thread % kScoredKeys * (size + 1), heads, size);
    __syncthreads();  // keys are no longer read either
    if (thread < kScoredKeys && first + thread < count) {
      float sum = 0.0F;
      for (int part = 0; part < kHeadGroups; ++part) sum += partials[part * kScoredKeys + thread];
      emit(first + thread, sum * indexer.shape.scale);
    }
  }
  __syncthreads();  // what was emitted may be read
}

inline void require_indexer(const Indexer& indexer, int top_k) {
  require_float(indexer.dtype);
  require_invariant(indexer.shape.heads > 0 && indexer.shape.kv_heads == 1 &&
                        indexer.shape.head_size > 0 && indexer.shape.softcap == 0.0F,
                    "an indexer has heads, one key head and no soft cap");
  require_invariant(top_k > 0, "a query chooses a key");
}

inline std::int64_t tokens_of(const Indexer& indexer) {
  return indexer.shape.num_sequences * indexer.shape.query_len;
}

/// Grid (x, y) of blocks of kRowThreads with `floats` of dynamic shared memory.
inline LaunchShape indexer_blocks(const Context& context, const Indexer& indexer, std::int64_t x,
                                  int y, std::int64_t floats) {
  const std::int64_t bytes = floats * size_of(DType::F32);
  require_shared_memory(context, bytes, indexer.shape.head_size);
  return {.grid = dim3(static_cast<unsigned>(x), static_cast<unsigned>(y)),
          .block = dim3(kRowThreads),
          .shared_bytes = static_cast<std::size_t>(bytes)};
}

}  // namespace meshplan::kernels::cuda
