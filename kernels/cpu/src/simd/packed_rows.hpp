// Rows as fp32 in scratch, padded to whole vectors, and the way back.
#pragma once

#include "simd/vec.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

MESHPLAN_INLINE int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
MESHPLAN_INLINE int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/// to (rows, padded) = from (rows, size) as fp32, zeros beyond `size` and for rows in [rows,
/// all_rows).
template <class T>
void pack_rows(float* to, int64_t padded, const T* from, int64_t from_stride, int64_t size,
               int64_t rows, int64_t all_rows) {
  for (int64_t row = 0; row < rows; ++row) {
    float* out = to + row * padded;
    for_each_vec(0, size, [&](int64_t i, auto part) {
      store(out + i, load(from + row * from_stride + i, part), part);
    });
    for (int64_t i = size; i < padded; ++i) out[i] = 0.0F;
  }
  memset(to + rows * padded, 0, static_cast<size_t>((all_rows - rows) * padded) * sizeof(float));
}

/// to (4, 4) = from (4, 4) transposed, in registers.
MESHPLAN_INLINE void transpose_quad(float* to, int64_t to_stride, const float* from,
                                    int64_t from_stride) {
  using Quad = float __attribute__((vector_size(16)));
  using Order = int32_t __attribute__((vector_size(16)));
  constexpr Order kLow = {0, 4, 1, 5};
  constexpr Order kHigh = {2, 6, 3, 7};
  constexpr Order kFirst = {0, 1, 4, 5};
  constexpr Order kSecond = {2, 3, 6, 7};
  Quad rows[4];
  for (int i = 0; i < 4; ++i) memcpy(&rows[i], from + i * from_stride, sizeof(Quad));
  const Quad low01 = __builtin_shuffle(rows[0], rows[1], kLow);
  const Quad low23 = __builtin_shuffle(rows[2], rows[3], kLow);
  const Quad high01 = __builtin_shuffle(rows[0], rows[1], kHigh);
  const Quad high23 = __builtin_shuffle(rows[2], rows[3], kHigh);
  const Quad columns[4] = {
      __builtin_shuffle(low01, low23, kFirst), __builtin_shuffle(low01, low23, kSecond),
      __builtin_shuffle(high01, high23, kFirst), __builtin_shuffle(high01, high23, kSecond)};
  for (int i = 0; i < 4; ++i) memcpy(to + i * to_stride, &columns[i], sizeof(Quad));
}

/// to (columns, rows) = from (rows, columns) transposed; both are multiples of 4.
inline void transpose(float* to, int64_t to_stride, const float* from, int64_t from_stride,
                      int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; row += 4)
    for (int64_t i = 0; i < columns; i += 4)
      transpose_quad(to + i * to_stride + row, to_stride, from + row * from_stride + i,
                     from_stride);
}

/// to (rows, size) = from (rows, padded), in the activations' type.
template <class T>
void unpack_rows(T* to, int64_t to_stride, const float* from, int64_t padded, int64_t size,
                 int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    for_each_vec(0, size, [&](int64_t i, auto part) {
      store(to + row * to_stride + i, load(from + row * padded + i, part), part);
    });
  }
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
