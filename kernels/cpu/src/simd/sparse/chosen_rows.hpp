// Products with rows that a query chose: they are gathered, so that no matrix product fits.
#pragma once

#include "simd/vec.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

using FourLanes = float __attribute__((vector_size(16)));

/// How many choices a query has: -1 fills the rest.
MESHPLAN_INLINE int64_t count_choices(const int32_t* choices, int64_t top_k) {
  int64_t count = top_k;
  while (count > 0 && choices[count - 1] < 0) --count;
  return count;
}

/// The sums over the lanes of four vectors, side by side.
MESHPLAN_INLINE FourLanes sums_of_four(const Vec (&x)[4]) {
  using Order = int32_t __attribute__((vector_size(16)));
  constexpr Order kLow = {0, 4, 1, 5};
  constexpr Order kHigh = {2, 6, 3, 7};
  constexpr Order kFirst = {0, 1, 4, 5};
  constexpr Order kSecond = {2, 3, 6, 7};
  FourLanes rows[4];
  for (int i = 0; i < 4; ++i) {
    FourLanes parts[kLanes / 4];
    memcpy(parts, &x[i], sizeof(Vec));
    rows[i] = parts[0];
    for (int part = 1; part < kLanes / 4; ++part) rows[i] += parts[part];
  }
  const FourLanes low01 = __builtin_shuffle(rows[0], rows[1], kLow);
  const FourLanes low23 = __builtin_shuffle(rows[2], rows[3], kLow);
  const FourLanes high01 = __builtin_shuffle(rows[0], rows[1], kHigh);
  const FourLanes high23 = __builtin_shuffle(rows[2], rows[3], kHigh);
  return (__builtin_shuffle(low01, low23, kFirst) + __builtin_shuffle(low01, low23, kSecond)) +
         (__builtin_shuffle(high01, high23, kFirst) + __builtin_shuffle(high01, high23, kSecond));
}

/// out[c] = x . rows[choices[c]]: rows of `padded` elements, whole vectors.
inline void dot_chosen(float* out, const float* x, const float* rows, int64_t padded,
                       const int32_t* choices, int64_t count) {
  for (int64_t c = 0; c < count; c += 4) {
    const float* row[4];
    for (int64_t i = 0; i < 4; ++i)
      row[i] = rows + choices[c + i < count ? c + i : count - 1] * padded;
    Vec sums[4] = {};
    for (int64_t e = 0; e < padded; e += kLanes) {
      const Vec own = load(x + e);
      for (int i = 0; i < 4; ++i) sums[i] += own * load(row[i] + e);
    }
    const FourLanes four = sums_of_four(sums);
    const int64_t here = count - c < 4 ? count - c : 4;
    for (int64_t i = 0; i < here; ++i) out[c + i] = four[i];
  }
}

/// Columns [begin, begin + vecs * kLanes) of add_chosen, summed in registers.
template <int vecs>
MESHPLAN_INLINE void add_chosen_columns(float* out, const float* weights, const float* rows,
                                        int64_t padded, const int32_t* choices, int64_t count,
                                        int64_t begin) {
  Vec sums[vecs];
  for (int v = 0; v < vecs; ++v) sums[v] = load(out + begin + v * kLanes);
  for (int64_t c = 0; c < count; ++c) {
    const float* row = rows + choices[c] * padded + begin;
    for (int v = 0; v < vecs; ++v) sums[v] += load(row + v * kLanes) * weights[c];
  }
  for (int v = 0; v < vecs; ++v) store(out + begin + v * kLanes, sums[v]);
}

/// out += sum over c of weights[c] rows[choices[c]], in their order.
inline void add_chosen(float* out, const float* weights, const float* rows, int64_t padded,
                       const int32_t* choices, int64_t count) {
  int64_t e = 0;
  for (; e + 8 * kLanes <= padded; e += 8 * kLanes)
    add_chosen_columns<8>(out, weights, rows, padded, choices, count, e);
  for (; e + 4 * kLanes <= padded; e += 4 * kLanes)
    add_chosen_columns<4>(out, weights, rows, padded, choices, count, e);
  for (; e < padded; e += kLanes)
    add_chosen_columns<1>(out, weights, rows, padded, choices, count, e);
}

/// rows[choices[c]] += weights[c] x
inline void add_to_chosen(float* rows, const float* weights, const float* x, int64_t padded,
                          const int32_t* choices, int64_t count) {
  for (int64_t c = 0; c < count; ++c) {
    float* row = rows + choices[c] * padded;
    for (int64_t e = 0; e < padded; e += kLanes)
      store(row + e, load(row + e) + load(x + e) * weights[c]);
  }
}

/// The largest of x[0, count); -infinity if there is none.
MESHPLAN_INLINE float largest_of(const float* x, int64_t count) {
  const Vec lowest = splat(-__builtin_inff());
  Vec maxima = lowest;
  for_each_vec(0, count, [&](int64_t i, auto part) {
    maxima = max(maxima, select(load(x + i, part), lowest, part));
  });
  return max_lane(maxima);
}

/// x = exp(x - shift); returns their sum.
MESHPLAN_INLINE float exponentiate(float* x, int64_t count, float shift) {
  Vec sums{};
  for_each_vec(0, count, [&](int64_t i, auto part) {
    const Vec p = select(exp(load(x + i, part) - shift), Vec{}, part);
    store(x + i, p, part);
    sums += p;
  });
  return sum(sums);
}

MESHPLAN_INLINE void multiply(float* x, int64_t count, float factor) {
  for_each_vec(0, count,
               [&](int64_t i, auto part) { store(x + i, load(x + i, part) * factor, part); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
