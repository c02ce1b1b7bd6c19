// Vectors of fp32 for the instruction set that this file is being compiled for. Everything in simd/
// is compiled once per instruction set, each time into another namespace, and includes no C++
// library header: an inline function of the library, compiled for AVX-512 here, could be merged by
// the linker into code that runs on a smaller CPU.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifndef MESHPLAN_ISA
#error "MESHPLAN_ISA names the namespace of the instruction set"
#endif

namespace meshplan::kernels::MESHPLAN_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Vec = float __attribute__((vector_size(kLanes * 4)));
using IntVec = int32_t __attribute__((vector_size(kLanes * 4)));
using UintVec = uint32_t __attribute__((vector_size(kLanes * 4)));
using Half = uint16_t __attribute__((vector_size(kLanes * 2)));

#define MESHPLAN_INLINE __attribute__((always_inline)) inline

/// The upper half of an fp32.
struct Bf16 {
  uint16_t bits;
};

/// IEEE binary16.
struct F16 {
  uint16_t bits;
};

/// How many elements of a vector exist: all, or the last `count` of a row.
struct Full {};
struct Tail {
  int64_t count;
};

/// A number known at compile time.
template <int n>
struct Count {
  static constexpr int value = n;
};

MESHPLAN_INLINE Vec splat(float value) {
  return Vec{} + value;
}
MESHPLAN_INLINE IntVec as_int(Vec x) {
  return reinterpret_cast<IntVec>(x);
}
MESHPLAN_INLINE Vec as_float(IntVec x) {
  return reinterpret_cast<Vec>(x);
}

MESHPLAN_INLINE Vec load(const float* p, Full /*full*/ = {}) {
  Vec result;
  memcpy(&result, p, sizeof result);
  return result;
}
MESHPLAN_INLINE Vec load(const float* p, Tail tail) {
  float values[kLanes] = {};
  for (int64_t i = 0; i < tail.count; ++i) values[i] = p[i];
  return load(values);
}
MESHPLAN_INLINE void store(float* p, Vec x, Full /*full*/ = {}) {
  memcpy(p, &x, sizeof x);
}
MESHPLAN_INLINE void store(float* p, Vec x, Tail tail) {
  float values[kLanes];
  store(values, x);
  for (int64_t i = 0; i < tail.count; ++i) p[i] = values[i];
}

MESHPLAN_INLINE Vec widen(Half half) {
  return reinterpret_cast<Vec>(__builtin_convertvector(half, UintVec) << 16);
}
/// Round to nearest even; NaN stays a (quiet) NaN.
MESHPLAN_INLINE Half narrow(Vec x) {
  const UintVec bits = reinterpret_cast<UintVec>(x);
  const UintVec rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const UintVec quiet = (bits >> 16) | 0x40U;
  const IntVec is_number = x == x;  // NOLINT(misc-redundant-expression): not of a NaN
  return __builtin_convertvector(is_number ? rounded : quiet, Half);
}

MESHPLAN_INLINE Vec load(const Bf16* p, Full /*full*/ = {}) {
  Half half;
  memcpy(&half, p, sizeof half);
  return widen(half);
}
MESHPLAN_INLINE Vec load(const Bf16* p, Tail tail) {
  Bf16 values[kLanes] = {};
  for (int64_t i = 0; i < tail.count; ++i) values[i] = p[i];
  return load(values);
}
MESHPLAN_INLINE void store(Bf16* p, Vec x, Full /*full*/ = {}) {
  const Half half = narrow(x);
  memcpy(p, &half, sizeof half);
}
MESHPLAN_INLINE void store(Bf16* p, Vec x, Tail tail) {
  Bf16 values[kLanes];
  store(values, x);
  for (int64_t i = 0; i < tail.count; ++i) p[i] = values[i];
}

/// Exact. Without F16C the exponent is moved by a multiplication, which also normalizes subnormals.
MESHPLAN_INLINE Vec widen_f16(Half half) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(half)));
#elif defined(__F16C__)
  return reinterpret_cast<Vec>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(half)));
#else
  const UintVec bits = __builtin_convertvector(half, UintVec);
  const UintVec magnitude = (bits & 0x7fffU) << 13;
  const UintVec scaled = reinterpret_cast<UintVec>(reinterpret_cast<Vec>(magnitude) * 0x1p112F);
  const UintVec special = magnitude | 0x7f800000U;  // infinities and NaNs
  return reinterpret_cast<Vec>((magnitude >= (0x7c00U << 13) ? special : scaled) |
                               ((bits & 0x8000U) << 16));
#endif
}
/// Round to nearest even; beyond 65,519 infinity; NaN stays a (quiet) NaN.
MESHPLAN_INLINE Half narrow_f16(Vec x) {
#if defined(__AVX512F__)
  return reinterpret_cast<Half>(
      _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  return reinterpret_cast<Half>(
      _mm256_cvtps_ph(reinterpret_cast<__m256>(x), _MM_FROUND_TO_NEAREST_INT));
#else
  const UintVec bits = reinterpret_cast<UintVec>(x);
  const UintVec sign = (bits & 0x80000000U) >> 16;
  const UintVec magnitude = bits & 0x7fffffffU;
  // Below 2^-14 adding 0.5 leaves the rounded subnormal in the lowest bits (ulp(0.5) = 2^-24).
  const UintVec small =
      reinterpret_cast<UintVec>(reinterpret_cast<Vec>(magnitude) + 0.5F) - 0x3f000000U;
  const UintVec normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  const UintVec finite = magnitude < (113U << 23) ? small : normal;
  const UintVec bounded = magnitude >= (143U << 23) ? UintVec{} + 0x7c00U : finite;
  const UintVec result = magnitude > 0x7f800000U ? UintVec{} + 0x7e00U : bounded;
  return __builtin_convertvector(result | sign, Half);
#endif
}

MESHPLAN_INLINE Vec load(const F16* p, Full /*full*/ = {}) {
  Half half;
  memcpy(&half, p, sizeof half);
  return widen_f16(half);
}
MESHPLAN_INLINE Vec load(const F16* p, Tail tail) {
  F16 values[kLanes] = {};
  for (int64_t i = 0; i < tail.count; ++i) values[i] = p[i];
  return load(values);
}
MESHPLAN_INLINE void store(F16* p, Vec x, Full /*full*/ = {}) {
  const Half half = narrow_f16(x);
  memcpy(p, &half, sizeof half);
}
MESHPLAN_INLINE void store(F16* p, Vec x, Tail tail) {
  F16 values[kLanes];
  store(values, x);
  for (int64_t i = 0; i < tail.count; ++i) p[i] = values[i];
}

/// Calls body(i, Full or Tail) over [begin, end) in steps of one vector.
template <class Body>
MESHPLAN_INLINE void for_each_vec(int64_t begin, int64_t end, Body body) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, Full{});
  if (i < end) body(i, Tail{end - i});
}

MESHPLAN_INLINE Vec min(Vec a, Vec b) {
  return a < b ? a : b;
}
MESHPLAN_INLINE Vec max(Vec a, Vec b) {
  return a > b ? a : b;
}
MESHPLAN_INLINE Vec abs(Vec x) {
  return as_float(as_int(x) & 0x7fffffff);
}

MESHPLAN_INLINE Vec sqrt(Vec x) {
#if defined(__AVX512F__)
  // masked with all lanes: GCC 12 warns inside its own header about the plain form
  return reinterpret_cast<Vec>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(x)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_sqrt_ps(reinterpret_cast<__m256>(x)));
#else
  return reinterpret_cast<Vec>(_mm_sqrt_ps(reinterpret_cast<__m128>(x)));
#endif
}

/// Sum and maximum over lanes, as a tree.
MESHPLAN_INLINE float sum(Vec x) {
  float values[kLanes];
  store(values, x);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) values[i] += values[i + width];
  return values[0];
}
MESHPLAN_INLINE float max_lane(Vec x) {
  float values[kLanes];
  store(values, x);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      values[i] = values[i] > values[i + width] ? values[i] : values[i + width];
  return values[0];
}

/// 0, 1, 2, ...
MESHPLAN_INLINE IntVec iota() {
  IntVec result;
  for (int i = 0; i < kLanes; ++i) result[i] = i;
  return result;
}

/// `x` where a tail has elements, `other` beyond.
MESHPLAN_INLINE Vec select(Vec x, Vec /*other*/, Full /*full*/) {
  return x;
}
MESHPLAN_INLINE Vec select(Vec x, Vec other, Tail tail) {
  return iota() < static_cast<int32_t>(tail.count) ? x : other;
}

/// e^x within 2 ulp; 0 below -87 (where fp32 would leave the normal range), NaN for NaN, saturates
/// above 88.72. Method: x = n ln 2 + r, |r| <= ln(2)/2, degree-7 polynomial (Cody & Waite 1980).
MESHPLAN_INLINE Vec exp(Vec x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const Vec clamped = max(min(x, splat(88.72F)), splat(-87.0F));
  const Vec shifted = clamped * 1.44269504F + kRound;
  const Vec n = shifted - kRound;
  const Vec r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  Vec p = splat(1.0F / 5040.0F);
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * (r * r) + r + 1.0F;
  const Vec scaled = as_float(as_int(p) + (as_int(shifted) << 23));
  const Vec bounded = x < -87.0F ? Vec{} : scaled;
  const IntVec is_number = x == x;  // NOLINT(misc-redundant-expression): not of a NaN
  return is_number ? bounded : x;
}

MESHPLAN_INLINE Vec sigmoid(Vec x) {
  return 1.0F / (1.0F + exp(-x));
}
/// Within 4e-7 of the value. Near zero by an odd polynomial (Cephes tanhf, Moshier 1989), which
/// keeps the relative accuracy that 1 - 2 / (e^2x + 1) loses there.
MESHPLAN_INLINE Vec tanh(Vec x) {
  const Vec square = x * x;
  Vec p = splat(-5.70498872745e-3F);
  p = p * square + 2.06390887954e-2F;
  p = p * square - 5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square - 3.33332819422e-1F;
  const Vec near_zero = p * square * x + x;
  const Vec far = 1.0F - 2.0F / (exp(x + x) + 1.0F);
  return abs(x) < 0.625F ? near_zero : far;
}

/// The normal distribution function and density. Both tails keep relative accuracy (3e-7 times the
/// rounding of x^2): Phi(-a) = exp(-a^2/2) q(1 / (1 + a / sqrt(8))) / 2 with q fitted at Chebyshev
/// points to exp(z^2) erfc(z), z = a / sqrt(2) in [0, 9.5].
struct NormalDistribution {
  Vec cumulative;
  Vec density;
};
MESHPLAN_INLINE NormalDistribution normal_distribution(Vec x) {
  const Vec a = abs(x);
  const Vec t = 1.0F / (1.0F + a * 0.353553391F);
  Vec q = splat(-4.618247243e-2F);
  q = q * t + 2.180638932e-1F;
  q = q * t + -3.395605148e-1F;
  q = q * t + 9.364087385e-2F;
  q = q * t + 1.157865803e-1F;
  q = q * t + 1.324210512e-1F;
  q = q * t + 2.651863677e-1F;
  q = q * t + 2.781242958e-1F;
  q = q * t + 2.825403878e-1F;
  q = q * t + -2.047339130e-5F;
  const Vec e = exp(a * a * -0.5F);
  const Vec tail = 0.5F * e * q;
  return {x > 0.0F ? 1.0F - tail : tail, e * 0.398942280F};
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
