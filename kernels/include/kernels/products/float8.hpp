// FP8: tensors of 8-bit floating-point numbers with one scale each, and products of them.
#pragma once

#include <bit>
#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// The two formats of Micikevicius et al. 2022 ("FP8 Formats for Deep Learning", table 1): values
/// and weights in E4M3 (no infinity, largest 448), gradients in E5M2 (largest 57344).
enum class Float8Format : std::uint8_t { E4M3, E5M2 };

struct Float8Layout {
  int mantissa_bits = 3;
  int bias = 7;
  float largest = 448.0F;
  std::uint8_t largest_code = 0x7e;
};
constexpr Float8Layout layout_of(Float8Format format) {
  return format == Float8Format::E4M3 ? Float8Layout{3, 7, 448.0F, 0x7e}
                                      : Float8Layout{2, 15, 57344.0F, 0x7b};
}

/// Rounds to nearest even; what is too large becomes the largest number, NaN stays NaN.
constexpr std::uint8_t to_float8(float x, Float8Format format) {
  const Float8Layout layout = layout_of(format);
  const auto word = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>(word >> 24 & 0x80U);
  const std::uint32_t magnitude = word & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return 0x7f;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  std::uint32_t code = 0;
  if (exponent < 1 - layout.bias) {
    // Multiples of the smallest number: adding 2^23 leaves their count in the mantissa, rounded.
    const auto per_unit = std::bit_cast<float>(
        static_cast<std::uint32_t>(layout.bias - 1 + layout.mantissa_bits + 127) << 23);
    const float count = std::bit_cast<float>(magnitude) * per_unit + 0x1p23F;
    code = std::bit_cast<std::uint32_t>(count) & 0x7fffffU;
  } else {
    const int dropped = 23 - layout.mantissa_bits;
    const std::uint32_t half = (1U << (dropped - 1)) - 1U + (magnitude >> dropped & 1U);
    code = (magnitude + half) >> dropped;
    code -= static_cast<std::uint32_t>(127 - layout.bias) << layout.mantissa_bits;
    if (code > layout.largest_code) code = layout.largest_code;
  }
  return static_cast<std::uint8_t>(sign | code);
}

/// Exact.
constexpr float from_float8(std::uint8_t code, Float8Format format) {
  const Float8Layout layout = layout_of(format);
  const std::uint32_t sign = std::uint32_t{code} >> 7 << 31;
  const std::uint32_t magnitude = code & 0x7fU;
  const std::uint32_t exponent = magnitude >> layout.mantissa_bits;
  const std::uint32_t mantissa = magnitude & ((1U << layout.mantissa_bits) - 1U);
  if (magnitude > layout.largest_code) {
    const bool infinite = format == Float8Format::E5M2 && mantissa == 0;
    return std::bit_cast<float>(sign | (infinite ? 0x7f800000U : 0x7fc00000U));
  }
  if (exponent == 0) {
    const auto unit = std::bit_cast<float>(
        static_cast<std::uint32_t>(1 - layout.bias - layout.mantissa_bits + 127) << 23);
    const float value = static_cast<float>(mantissa) * unit;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign |
                              (exponent + static_cast<std::uint32_t>(127 - layout.bias)) << 23 |
                              mantissa << (23 - layout.mantissa_bits));
}

/// scale = max |x| / largest number of the format (1 where that is no normal number), quantized =
/// x / scale rounded to nearest even ("current scaling", NVIDIA Transformer Engine). Multiplied
/// back by `scale` they are x within half a unit of the format. A NaN or an infinity among x gives
/// NaN where it stood, so that the step shows it.
/// Traffic: x twice, or once where the kernel that wrote it has left its largest number; and a byte
/// an element for each layout.
struct QuantizeFloat8 {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DType dtype = DType::BF16;  // or F32
  const void* x = nullptr;    // (rows, columns), contiguous
  Float8Format format = Float8Format::E4M3;
  std::uint8_t* quantized = nullptr;   // (rows, columns), or null
  std::uint8_t* transposed = nullptr;  // (columns, rows), or null
  float* scale = nullptr;              // one number
  /// max |x| without NaNs, as norms and activations leave it of what they write; null = not known.
  const float* largest = nullptr;
};

/// out (+)= a_scale b_scale a b^T [+ bias]: (M, K) times (N, K), all contiguous, both operands
/// with K last, which is the one layout that FP8 matrix units read. Sums in fp32, unless
/// `fast_accumulation` lets a GPU keep those of its matrix units shorter. M, N and K are multiples
/// of 16, of which CUDA's libraries have kernels. At most one operand is E5M2.
/// Costs 2 M N K FLOP. Traffic: (M K + N K) bytes + out.
struct ScaledProduct {
  std::int64_t m = 0, n = 0, k = 0;
  Float8Format a_format = Float8Format::E4M3;
  Float8Format b_format = Float8Format::E4M3;
  const std::uint8_t* a = nullptr;  // (M, K)
  const std::uint8_t* b = nullptr;  // (N, K)
  const float* a_scale = nullptr;   // one number each
  const float* b_scale = nullptr;
  DType out_dtype = DType::BF16;  // or F32
  void* out = nullptr;            // (M, N)
  const void* bias = nullptr;     // (N) in out_dtype, or null; not with accumulate
  bool accumulate = false;        // F32 only
  /// Hopper's units then add in about 14 bits all the way instead of passing sums on to fp32 now
  /// and then: fine for activations, off by up to 2 % for the sums over tokens of a weight
  /// gradient (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.3.2).
  bool fast_accumulation = false;
};

constexpr std::int64_t kFloat8Multiple = 16;

}  // namespace meshplan::kernels
