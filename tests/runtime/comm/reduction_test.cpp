#include "comm/reduction.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

template <class T>
std::vector<T> reduced(DType dtype, ReduceOp op, const std::vector<std::vector<T>>& inputs,
                       int divisor = 1) {
  std::vector<const void*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  reduce_in_order(dtype, op, sources, out.data(), static_cast<std::int64_t>(out.size()), divisor);
  return out;
}

TEST_CASE("fp32 is added left to right", "[runtime][reduction]") {
  // 1 is lost beside 2^24 (24-bit significand), so the order shows.
  constexpr float kLarge = 16777216.0F;
  CHECK(reduced<float>(DType::F32, ReduceOp::Sum, {{kLarge}, {1}, {-kLarge}})[0] == 0.0F);
  CHECK(reduced<float>(DType::F32, ReduceOp::Sum, {{kLarge}, {-kLarge}, {1}})[0] == 1.0F);
}

TEST_CASE("bf16 and fp16 are added in fp32 and rounded once, to the nearest even",
          "[runtime][reduction]") {
  // bf16 has 8 bits of significand: 256 + 1 + 1 is 258 (even) in fp32, but 256 if rounded each
  // time.
  constexpr std::uint16_t k256 = 0x4380, k258 = 0x4381, kOne = 0x3f80, k257Rounded = 0x4380;
  CHECK(reduced<std::uint16_t>(DType::BF16, ReduceOp::Sum, {{k256}, {kOne}, {kOne}})[0] == k258);
  CHECK(reduced<std::uint16_t>(DType::BF16, ReduceOp::Sum, {{k256}, {kOne}})[0] == k257Rounded);
  // fp16: 65504 + 65504 - 65504 leaves the range on the way, and comes back.
  constexpr std::uint16_t kMax = 0x7bff, kMinusMax = 0xfbff;
  CHECK(reduced<std::uint16_t>(DType::F16, ReduceOp::Sum, {{kMax}, {kMax}, {kMinusMax}})[0] ==
        kMax);
  // The average of values at the top of the range is in range: NCCL-style division at the end.
  CHECK(reduced<std::uint16_t>(DType::F16, ReduceOp::Avg, {{kMax}, {kMax}}, 2)[0] == kMax);
}

TEST_CASE("A bf16 NaN and infinity survive", "[runtime][reduction]") {
  constexpr std::uint16_t kInfinity = 0x7f80, kNan = 0x7fff, kOne = 0x3f80;
  CHECK(reduced<std::uint16_t>(DType::BF16, ReduceOp::Sum, {{kInfinity}, {kOne}})[0] == kInfinity);
  const auto sum = reduced<std::uint16_t>(DType::BF16, ReduceOp::Sum, {{kNan}, {kOne}})[0];
  CHECK((sum & 0x7f80) == 0x7f80);
  CHECK((sum & 0x7f) != 0);
}

TEST_CASE("Integers wrap, and keep all their bits", "[runtime][reduction]") {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  CHECK(reduced<std::int64_t>(DType::I64, ReduceOp::Sum, {{kMax}, {1}})[0] ==
        std::numeric_limits<std::int64_t>::min());
  CHECK(reduced<std::int64_t>(DType::I64, ReduceOp::Max, {{kMax - 1}, {kMax}})[0] == kMax);
  CHECK(reduced<std::int32_t>(DType::I32, ReduceOp::Prod, {{-7}, {6}, {2}})[0] == -84);
}

TEST_CASE("Lengths around the block size are all reduced, also into a source",
          "[runtime][reduction]") {
  for (const std::size_t length : {std::size_t{1}, std::size_t{1023}, std::size_t{1024},
                                   std::size_t{1025}, std::size_t{5000}}) {
    std::vector<double> a(length), b(length);
    for (std::size_t i = 0; i < length; ++i) {
      a[i] = static_cast<double>(i);
      b[i] = 2.0 * static_cast<double>(i) + 1;
    }
    const std::vector<const void*> sources{a.data(), b.data()};
    reduce_in_order(DType::F64, ReduceOp::Sum, sources, b.data(), static_cast<std::int64_t>(length),
                    1);
    for (std::size_t i = 0; i < length; ++i) REQUIRE(b[i] == 3.0 * static_cast<double>(i) + 1);
  }
}

TEST_CASE("8-bit types and integer averages are refused", "[runtime][reduction]") {
  CHECK_FALSE(is_reducible(DType::U8, ReduceOp::Sum));
  CHECK_FALSE(is_reducible(DType::I32, ReduceOp::Avg));
  CHECK(is_reducible(DType::BF16, ReduceOp::Avg));
  CHECK_THROWS_AS(reduced<std::uint8_t>(DType::U8, ReduceOp::Sum, {{1}, {2}}), InvariantError);
}

}  // namespace
}  // namespace meshplan::runtime
