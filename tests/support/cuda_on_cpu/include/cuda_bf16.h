// Stands in for CUDA's header: bfloat16 with the conversions that kernels/cuda uses.
#pragma once

#include <bit>
#include <cstdint>

struct __nv_bfloat16 {
  std::uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}
/// Round to nearest even; NaN becomes the canonical one, as the cvt instruction does.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  if ((word & 0x7fffffffU) > 0x7f800000U) return {0x7fff};
  return {static_cast<std::uint16_t>((word + 0x7fffU + (word >> 16 & 1U)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float x) {
  return __float2bfloat16_rn(x);
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
