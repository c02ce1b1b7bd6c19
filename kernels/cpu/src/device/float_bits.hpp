// 16-bit numbers one by one, where the compiler's vectors will do.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/dtype.hpp"
#include "core/error.hpp"

namespace meshplan::kernels {

struct Bf16Bits {
  std::uint16_t bits;
};
struct F16Bits {
  std::uint16_t bits;
};

inline float to_float(float value) {
  return value;
}
inline float to_float(Bf16Bits value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
inline float to_float(F16Bits value) {
  return static_cast<float>(std::bit_cast<_Float16>(value.bits));
}
inline void set(float& to, float value) {
  to = value;
}
inline void set(Bf16Bits& to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);  // to nearest even
  const std::uint32_t kept = std::isnan(value) ? bits | 0x400000U : rounded;
  to.bits = static_cast<std::uint16_t>(kept >> 16);
}
inline void set(F16Bits& to, float value) {
  to.bits = std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

/// Calls use with a value of the type that holds such numbers.
/// @throws InvariantError unless dtype is F32, BF16 or F16
template <class Use>
decltype(auto) with_float_bits(DType dtype, const Use& use) {
  if (dtype == DType::F32) return use(0.0F);
  if (dtype == DType::BF16) return use(Bf16Bits{});
  require_invariant(dtype == DType::F16, "numbers are fp32, bf16 or fp16");
  return use(F16Bits{});
}

}  // namespace meshplan::kernels
