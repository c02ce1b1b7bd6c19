#pragma once

#include "simd/vec.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

/// One matrix in cache, as the attention tiles use it.
struct Tile {
  const float* data;
  int64_t row_stride;
  int64_t column_stride;
};

#if defined(__AVX512F__)
constexpr int kTileVecs = 4;  // 4 x 4 accumulators of 32 registers
#else
constexpr int kTileVecs = 2;  // 4 x 2 of 16
#endif
constexpr int kTileRows = 4;

template <int rows, int vecs>
MESHPLAN_INLINE void gemm_tile(float* c, int64_t c_stride, const float* a, const Tile& shape,
                               const float* b, int64_t b_stride, int64_t k_size, bool accumulate) {
  Vec sums[rows][vecs];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vecs; ++v)
      sums[r][v] = accumulate ? load(c + r * c_stride + v * kLanes) : Vec{};
  for (int64_t k = 0; k < k_size; ++k) {
    Vec row[vecs];
    for (int v = 0; v < vecs; ++v) row[v] = load(b + k * b_stride + v * kLanes);
    for (int r = 0; r < rows; ++r) {
      const float factor = a[r * shape.row_stride + k * shape.column_stride];
      for (int v = 0; v < vecs; ++v) sums[r][v] += row[v] * factor;
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vecs; ++v) store(c + r * c_stride + v * kLanes, sums[r][v]);
}

template <int rows>
MESHPLAN_INLINE void gemm_rows(float* c, int64_t c_stride, const float* a, const Tile& shape,
                               const float* b, int64_t b_stride, int64_t n, int64_t k_size,
                               bool accumulate) {
  int64_t j = 0;
  for (; j + kTileVecs * kLanes <= n; j += kTileVecs * kLanes)
    gemm_tile<rows, kTileVecs>(c + j, c_stride, a, shape, b + j, b_stride, k_size, accumulate);
  for (; j < n; j += kLanes)
    gemm_tile<rows, 1>(c + j, c_stride, a, shape, b + j, b_stride, k_size, accumulate);
}

/// c (m, n) (+)= a (m, k) b (k, n); b and c are row-major with padding: n is a multiple of kLanes.
inline void small_gemm(float* c, int64_t c_stride, const Tile& a, const float* b, int64_t b_stride,
                       int64_t m, int64_t n, int64_t k_size, bool accumulate) {
  int64_t i = 0;
  for (; i + kTileRows <= m; i += kTileRows)
    gemm_rows<kTileRows>(c + i * c_stride, c_stride, a.data + i * a.row_stride, a, b, b_stride, n,
                         k_size, accumulate);
  for (; i < m; ++i)
    gemm_rows<1>(c + i * c_stride, c_stride, a.data + i * a.row_stride, a, b, b_stride, n, k_size,
                 accumulate);
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
