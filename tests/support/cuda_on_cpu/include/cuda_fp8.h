// Stands in for CUDA's header: the conversion to FP8 that kernels/cuda uses, in doubles, by trying
// both neighbours.
#pragma once

#include <cmath>
#include <cstdint>

using __nv_fp8_storage_t = std::uint8_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

/// Round to nearest even; finite numbers and infinities beyond the largest one become that.
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t /*saturate*/,
                                                __nv_fp8_interpretation_t kind) {
  const int mantissa_bits = kind == __NV_E4M3 ? 3 : 2;
  const int bias = kind == __NV_E4M3 ? 7 : 15;
  const int largest = kind == __NV_E4M3 ? 0x7e : 0x7b;
  if (std::isnan(x)) return 0x7f;
  const int sign = std::signbit(x) ? 0x80 : 0;
  const double size = std::abs(double{x});
  const auto value_of = [&](int code) {
    const int exponent = code >> mantissa_bits;
    const double fraction =
        (code & ((1 << mantissa_bits) - 1)) / static_cast<double>(1 << mantissa_bits);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias)
                         : std::ldexp(1.0 + fraction, exponent - bias);
  };
  if (size >= value_of(largest)) return static_cast<__nv_fp8_storage_t>(sign | largest);
  int below = 0;  // by bisection: the largest code whose value is not larger
  for (int bit = 0x40; bit > 0; bit /= 2)
    if ((below | bit) <= largest && value_of(below | bit) <= size) below |= bit;
  const double lower = size - value_of(below);
  const double upper = value_of(below + 1) - size;
  const bool up = upper < lower || (upper == lower && below % 2 == 1);
  return static_cast<__nv_fp8_storage_t>(sign | (below + (up ? 1 : 0)));
}
