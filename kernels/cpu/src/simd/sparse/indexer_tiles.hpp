// Index scores: what selecting keys and the indexer's loss share.
#pragma once

#include "kernels/attention/indexer.hpp"
#include "simd/attention_tiles.hpp"
#include "simd/small_gemm.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

/// Head j's part of a score: w relu(product). A NaN stays.
MESHPLAN_INLINE Vec rectified(Vec product) {
  return product < 0.0F ? Vec{} : product;
}

/// The heads of one query and their weights, as fp32 at `query` (Hi, padded) and `weights`.
template <class T>
void pack_index_query(const Indexer& indexer, float* query, float* weights, int64_t padded,
                      int64_t token) {
  const AttentionShape& shape = indexer.shape;
  pack_rows(query, padded, static_cast<const T*>(indexer.q) + token * indexer.q_stride,
            shape.head_size, shape.head_size, shape.heads, shape.heads);
  const T* from = static_cast<const T*>(indexer.weights) + token * indexer.weights_stride;
  for_each_vec(0, shape.heads,
               [&](int64_t j, auto part) { store(weights + j, load(from + j, part), part); });
}

/// products (Hi, block) = the heads of a query times a transposed block of keys, `columns` of them.
MESHPLAN_INLINE void multiply_block(const AttentionShape& shape, float* products,
                                    const float* query, int64_t padded, const float* transposed,
                                    int64_t columns) {
  small_gemm({.c = products,
              .c_stride = kKeyBlock,
              .a = query,
              .a_row_stride = padded,
              .a_column_stride = 1,
              .b = transposed,
              .b_stride = kKeyBlock,
              .m = shape.heads,
              .n = columns,
              .k = shape.head_size,
              .accumulate = false});
}

/// scores[0, columns) = scale sum over j of w(j) relu(products(j, .)), heads ascending.
MESHPLAN_INLINE void sum_heads(const AttentionShape& shape, float* scores, const float* products,
                               const float* weights, int64_t columns) {
  for (int64_t i = 0; i < columns; i += kLanes) {
    Vec sum{};
    for (int64_t j = 0; j < shape.heads; ++j)
      sum += rectified(load(products + j * kKeyBlock + i)) * weights[j];
    store(scores + i, sum * shape.scale);
  }
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
