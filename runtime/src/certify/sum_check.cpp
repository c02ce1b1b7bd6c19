#include "certify/sum_check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "comm/reduction.hpp"
#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

template <class T>
double load(const std::byte* from, std::int64_t index) {
  T value;
  std::memcpy(&value, from + index * static_cast<std::int64_t>(sizeof(T)), sizeof value);
  return static_cast<double>(value);
}

double element(DType dtype, const std::byte* from, std::int64_t index) {
  switch (dtype) {
    case DType::F64:
      return load<double>(from, index);
    case DType::F32:
      return load<float>(from, index);
    case DType::F16:
      return load<_Float16>(from, index);
    case DType::BF16: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, from + 2 * index, sizeof bits);
      return double{std::bit_cast<float>(std::uint32_t{bits} << 16)};
    }
    case DType::I64:
      return load<std::int64_t>(from, index);
    case DType::I32:
      return load<std::int32_t>(from, index);
    case DType::I8:
      return load<std::int8_t>(from, index);
    case DType::U8:
      return load<std::uint8_t>(from, index);
  }
  throw InvariantError("a dtype without a size");
}

/// What a format rounds by at most, as a part of the number; its least number, its least normal one
/// and its largest.
struct Format {
  double roundoff = 0;
  double least = 0;
  double least_normal = 0;
  double largest = 0;
};

Format format_of(DType dtype) {
  constexpr double kFloat = 0x1p-24;
  constexpr double kLargestFloat = double{std::numeric_limits<float>::max()};
  switch (dtype) {
    case DType::F64:
      return {0x1p-53, std::numeric_limits<double>::denorm_min(), 0x1p-1022,
              std::numeric_limits<double>::max()};
    case DType::F16:
      return {kFloat + 0x1p-11, 0x1p-24, 0x1p-14, 65504};
    case DType::BF16:
      return {kFloat + 0x1p-8, 0x1p-133, 0x1p-126, kLargestFloat};
    default:
      return {kFloat, 0x1p-149, 0x1p-126, kLargestFloat};
  }
}

bool is_integer(DType dtype) {
  return dtype == DType::I64 || dtype == DType::I32;
}

bool is_extreme(ReduceOp op) {
  return op == ReduceOp::Min || op == ReduceOp::Max;
}

/// The reduction done once more, from the first rank to the last one or back.
std::vector<std::byte> reduced(const SumPart& part, bool backwards) {
  const std::int64_t bytes = part.count * size_of(part.dtype);
  // Copied to where numbers may lie: messages of other dtypes stand before them.
  std::vector<std::vector<std::byte>> given;
  for (const std::byte* from : part.given) given.emplace_back(from, from + bytes);
  if (backwards) std::ranges::reverse(given);
  std::vector<const void*> sources;
  for (const std::vector<std::byte>& numbers : given) sources.push_back(numbers.data());
  std::vector<std::byte> result(static_cast<std::size_t>(bytes));
  const bool mean = part.reduce == ReduceOp::Avg;
  reduce_in_order(part.dtype, part.reduce, sources, result.data(), part.count,
                  mean ? static_cast<int>(part.given.size()) : 1);
  return result;
}

/// Where every order gives the same number: with numbers equal, a zero may have either sign.
std::optional<OddElement> first_unequal(const SumPart& part) {
  const std::vector<std::byte> forwards = reduced(part, false);
  if (!first_other_element(part.dtype, part.result, forwards.data(), part.count))
    return std::nullopt;
  const std::vector<std::byte> backwards = reduced(part, true);
  const std::int64_t size = size_of(part.dtype);
  for (std::int64_t i = 0; i < part.count; ++i) {
    const auto equals = [&](const std::vector<std::byte>& sum) {
      return std::memcmp(part.result + i * size, sum.data() + i * size,
                         static_cast<std::size_t>(size)) == 0;
    };
    const double value = element(part.dtype, part.result, i);
    const double expected = element(part.dtype, forwards.data(), i);
    const bool alike = is_extreme(part.reduce) && (value == expected || std::isnan(expected));
    if (!equals(forwards) && !equals(backwards) && !alike) return OddElement{i, value, expected};
  }
  return std::nullopt;
}

/// The reduction of an element in double precision, and what its partial results can be, in
/// magnitude: at most, and (of a product) at least.
struct Reference {
  double result = 0;
  double most = 0;
  double least = 0;
};

Reference product_of(const SumPart& part, std::int64_t index) {
  Reference reference{.result = 1, .most = 1, .least = 1};
  for (const std::byte* given : part.given) {
    const double x = element(part.dtype, given, index);
    reference.result *= x;
    reference.most *= std::max(std::abs(x), 1.0);
    reference.least *= std::min(std::abs(x), 1.0);
  }
  return reference;
}

Reference sum_of(const SumPart& part, std::int64_t index) {
  Reference reference;
  for (const std::byte* given : part.given) {
    const double x = element(part.dtype, given, index);
    reference.result += x;
    reference.most += std::abs(x);
  }
  return reference;
}

/// fp64 has no wider reference here: its own errors count as well.
double roundoffs(const SumPart& part, const Format& format) {
  return static_cast<double>(part.given.size()) *
         (format.roundoff + (part.dtype == DType::F64 ? format.roundoff : 0x1p-53));
}

}  // namespace

std::optional<OddElement> first_other_element(DType dtype, const std::byte* value,
                                              const std::byte* expected, std::int64_t count) {
  const std::int64_t size = size_of(dtype);
  if (count == 0 || std::memcmp(value, expected, static_cast<std::size_t>(count * size)) == 0)
    return std::nullopt;
  std::int64_t i = 0;
  while (std::memcmp(value + i * size, expected + i * size, static_cast<std::size_t>(size)) == 0)
    ++i;
  return OddElement{i, element(dtype, value, i), element(dtype, expected, i)};
}

std::optional<OddElement> first_odd_element(const SumPart& part) {
  if (part.given.size() <= 2 || is_extreme(part.reduce) || is_integer(part.dtype))
    return first_unequal(part);
  const Format format = format_of(part.dtype);
  const double relative = roundoffs(part, format);
  const double absolute = static_cast<double>(part.given.size()) * format.least;
  const bool multiplies = part.reduce == ReduceOp::Prod;
  const double divisor =
      part.reduce == ReduceOp::Avg ? static_cast<double>(part.given.size()) : 1.0;
  for (std::int64_t i = 0; i < part.count; ++i) {
    const Reference reference = multiplies ? product_of(part, i) : sum_of(part, i);
    // A partial result may leave the format's range.
    if (!(reference.most * (1 + relative) <= format.largest)) continue;
    if (multiplies && reference.least < format.least_normal) continue;
    const double value = element(part.dtype, part.result, i);
    const double expected = reference.result / divisor;
    const double magnitude = multiplies ? std::abs(expected) : reference.most / divisor;
    if (!(std::abs(value - expected) <= relative * magnitude + absolute))
      return OddElement{i, value, expected};
  }
  return std::nullopt;
}

}  // namespace meshplan::runtime
