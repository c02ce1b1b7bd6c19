#include "runtime/weights/tensor_box.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <numeric>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 mantissa bits.
float from_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  constexpr int kSpecial = 31;
  if (exponent == kSpecial)
    return mantissa != 0 ? std::bit_cast<float>(0x7fc00000U) : sign * HUGE_VALF;
  const float significand = static_cast<float>(exponent == 0 ? mantissa : mantissa + 1024);
  return sign * std::ldexp(significand, std::max(exponent, 1) - 25);
}

std::uint16_t to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00);
  const float magnitude = std::abs(value);
  constexpr float kOverflow = 65520.0F;  // half way between the largest half and the next power
  if (magnitude >= kOverflow) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);               // magnitude = f * 2^exponent, f in [0.5, 1)
  const int unit = std::max(exponent - 11, -24);  // weight of the last bit
  // nearbyint rounds to even; a carry into the next exponent gives the right bits by itself.
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));
  const int biased = unit + 24;  // 0 for subnormals and the smallest normals
  return static_cast<std::uint16_t>(sign | (biased * 1024 + steps));
}

std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float load_float(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::F64:
      return static_cast<float>(load<double>(at));
    case DType::F32:
      return load<float>(at);
    case DType::BF16:
      return std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(at)} << 16);
    case DType::F16:
      return from_half(load<std::uint16_t>(at));
    default:
      throw ConfigError(
          fmt::format("dtype {} holds no floating-point weights; known: F64, F32, "
                      "F16, BF16",
                      name_of(dtype)));
  }
}

/// One row along the last dimension.
void copy_row(const std::byte* from, std::int64_t from_stride, DType dtype, float* to,
              std::int64_t to_stride, std::int64_t count) {
  if (dtype == DType::F32 && from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const std::int64_t step = from_stride * size_of(dtype);
  for (std::int64_t i = 0; i < count; ++i) to[i * to_stride] = load_float(from + i * step, dtype);
}

void copy_dimensions(std::size_t dim, const TensorBox& box, const TensorSource& from,
                     const std::byte* source, const TensorTarget& to, float* target) {
  const std::int64_t source_step = from.strides[dim] * size_of(from.dtype);
  const std::int64_t target_step = to.strides[dim];
  source += (box.begin[dim] - from.box.begin[dim]) * source_step;
  target += (box.begin[dim] - to.box.begin[dim]) * target_step;
  if (dim + 1 == box.size.size()) {
    copy_row(source, from.strides[dim], from.dtype, target, target_step, box.size[dim]);
    return;
  }
  for (std::int64_t i = 0; i < box.size[dim]; ++i)
    copy_dimensions(dim + 1, box, from, source + i * source_step, to, target + i * target_step);
}

}  // namespace

std::int64_t TensorBox::elements() const {
  return std::accumulate(size.begin(), size.end(), std::int64_t{1}, std::multiplies<>());
}

TensorBox whole_box(std::span<const std::int64_t> shape) {
  return {.begin = std::vector<std::int64_t>(shape.size(), 0),
          .size = {shape.begin(), shape.end()}};
}

std::optional<TensorBox> intersection(const TensorBox& a, const TensorBox& b) {
  require_invariant(a.size.size() == b.size.size(), "boxes of tensors of different rank");
  TensorBox both = a;
  for (std::size_t d = 0; d < a.size.size(); ++d) {
    both.begin[d] = std::max(a.begin[d], b.begin[d]);
    both.size[d] = std::min(a.begin[d] + a.size[d], b.begin[d] + b.size[d]) - both.begin[d];
    if (both.size[d] <= 0) return std::nullopt;
  }
  return both;
}

std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

std::vector<TensorBox> boxes_of_range(std::span<const std::int64_t> shape, std::int64_t begin,
                                      std::int64_t end) {
  std::vector<TensorBox> boxes;
  if (begin >= end) return boxes;
  if (shape.size() == 1) return {{.begin = {begin}, .size = {end - begin}}};
  const std::span<const std::int64_t> inner = shape.subspan(1);
  const std::int64_t row =
      std::accumulate(inner.begin(), inner.end(), std::int64_t{1}, std::multiplies<>());
  // A part of row `at`: the boxes of the inner tensor, with this row in front.
  const auto append_part = [&](std::int64_t at, std::int64_t first, std::int64_t last) {
    for (TensorBox& part : boxes_of_range(inner, first, last)) {
      part.begin.insert(part.begin.begin(), at);
      part.size.insert(part.size.begin(), 1);
      boxes.push_back(std::move(part));
    }
  };
  const std::int64_t first_whole = (begin + row - 1) / row;
  const std::int64_t past_whole = end / row;
  if (first_whole > past_whole) {  // inside one row
    append_part(past_whole, begin - past_whole * row, end - past_whole * row);
    return boxes;
  }
  if (begin < first_whole * row) append_part(first_whole - 1, begin - (first_whole - 1) * row, row);
  if (first_whole < past_whole) {
    TensorBox rows = whole_box(shape);
    rows.begin[0] = first_whole;
    rows.size[0] = past_whole - first_whole;
    boxes.push_back(std::move(rows));
  }
  if (past_whole * row < end) append_part(past_whole, 0, end - past_whole * row);
  return boxes;
}

std::int64_t copy_overlap(const TensorSource& from, const TensorTarget& to) {
  const std::optional<TensorBox> both = intersection(from.box, to.box);
  if (!both) return 0;
  copy_dimensions(0, *both, from, from.data, to, to.data);
  return both->elements();
}

void convert_from_float(std::span<const float> in, DType dtype, std::byte* out) {
  if (dtype == DType::F32) {
    std::memcpy(out, in.data(), in.size_bytes());
    return;
  }
  require_invariant(dtype == DType::F16 || dtype == DType::BF16, "weights are F32, F16 or BF16");
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint16_t bits = dtype == DType::F16 ? to_half(in[i]) : to_bfloat16(in[i]);
    std::memcpy(out + 2 * i, &bits, sizeof bits);
  }
}

}  // namespace meshplan::runtime
