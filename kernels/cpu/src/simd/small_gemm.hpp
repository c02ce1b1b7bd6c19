#pragma once

#include "simd/vec.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

/// c (m, n) (+)= a (m, k) b (k, n), all in cache. b and c are row-major and padded: n is a multiple
/// of kLanes. Element (i, j) of a is at i * a_row_stride + j * a_column_stride, so it may be
/// transposed.
struct SmallGemm {
  float* c;
  int64_t c_stride;
  const float* a;
  int64_t a_row_stride;
  int64_t a_column_stride;
  const float* b;
  int64_t b_stride;
  int64_t m;
  int64_t n;
  int64_t k;
  bool accumulate;
};

#if defined(__AVX512F__)
constexpr int kTileVecs = 4;  // 4 x 4 accumulators of 32 registers
#else
constexpr int kTileVecs = 2;  // 4 x 2 of 16
#endif
constexpr int kTileRows = 4;

/// Rows [i, i + rows) and columns [j, j + vecs * kLanes) of c, summed in registers.
template <int rows, int vecs>
MESHPLAN_INLINE void gemm_tile(const SmallGemm& g, int64_t i, int64_t j) {
  float* c = g.c + i * g.c_stride + j;
  const float* a = g.a + i * g.a_row_stride;
  const float* b = g.b + j;
  Vec sums[rows][vecs];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vecs; ++v)
      sums[r][v] = g.accumulate ? load(c + r * g.c_stride + v * kLanes) : Vec{};
  for (int64_t k = 0; k < g.k; ++k) {
    Vec row[vecs];
    for (int v = 0; v < vecs; ++v) row[v] = load(b + k * g.b_stride + v * kLanes);
    for (int r = 0; r < rows; ++r) {
      const float factor = a[r * g.a_row_stride + k * g.a_column_stride];
      for (int v = 0; v < vecs; ++v) sums[r][v] += row[v] * factor;
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vecs; ++v) store(c + r * g.c_stride + v * kLanes, sums[r][v]);
}

template <int rows>
MESHPLAN_INLINE void gemm_rows(const SmallGemm& g, int64_t i) {
  int64_t j = 0;
  for (; j + kTileVecs * kLanes <= g.n; j += kTileVecs * kLanes)
    gemm_tile<rows, kTileVecs>(g, i, j);
  for (; j < g.n; j += kLanes) gemm_tile<rows, 1>(g, i, j);
}

inline void small_gemm(const SmallGemm& g) {
  int64_t i = 0;
  for (; i + kTileRows <= g.m; i += kTileRows) gemm_rows<kTileRows>(g, i);
  for (; i < g.m; ++i) gemm_rows<1>(g, i);
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
