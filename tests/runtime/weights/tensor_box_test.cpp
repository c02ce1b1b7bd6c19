#include "runtime/weights/tensor_box.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

namespace meshplan::runtime {
namespace {

using Shape = std::vector<std::int64_t>;

/// Row-major positions of all elements of a box, in its own order.
void positions(const TensorBox& box, const Shape& strides, std::size_t dim, std::int64_t base,
               std::vector<std::int64_t>& out) {
  for (std::int64_t i = 0; i < box.size[dim]; ++i) {
    const std::int64_t at = base + (box.begin[dim] + i) * strides[dim];
    if (dim + 1 == box.size.size())
      out.push_back(at);
    else
      positions(box, strides, dim + 1, at, out);
  }
}

float half(std::uint16_t bits) {
  float value = 0;
  copy_overlap({.data = reinterpret_cast<const std::byte*>(&bits),
                .dtype = DType::F16,
                .box = {{0}, {1}},
                .strides = {1}},
               {.data = &value, .box = {{0}, {1}}, .strides = {1}});
  return value;
}

std::uint16_t narrow(float value, DType dtype) {
  std::uint16_t bits = 0;
  convert_from_float(std::span(&value, 1), dtype, reinterpret_cast<std::byte*>(&bits));
  return bits;
}

}  // namespace

TEST_CASE("the boxes of a range hold its elements, once and in order", "[runtime][tensor_box]") {
  for (const Shape& shape : {Shape{7}, Shape{3, 4}, Shape{2, 3, 4}, Shape{1, 5}, Shape{4, 1, 3}}) {
    const std::int64_t all =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    const Shape strides = dense_strides(shape);
    for (std::int64_t begin = 0; begin <= all; ++begin)
      for (std::int64_t end = begin; end <= all; ++end) {
        std::vector<std::int64_t> found;
        const auto boxes = boxes_of_range(shape, begin, end);
        CHECK(boxes.size() <= 2 * shape.size() - 1);
        for (const TensorBox& box : boxes) positions(box, strides, 0, 0, found);
        std::vector<std::int64_t> expected(static_cast<std::size_t>(end - begin));
        std::iota(expected.begin(), expected.end(), begin);
        CHECK(found == expected);
      }
  }
}

TEST_CASE("boxes meet where both lie", "[runtime][tensor_box]") {
  const TensorBox a{{0, 2}, {4, 4}};
  CHECK(intersection(a, {{3, 0}, {9, 3}}) == TensorBox{{3, 2}, {1, 1}});
  CHECK(intersection(a, {{4, 2}, {1, 1}}) == std::nullopt);
  CHECK(intersection(a, a) == a);
}

TEST_CASE("copying moves the common elements through any strides", "[runtime][tensor_box]") {
  // Source: rows 1..2 of a 4 x 3 tensor, stored transposed. Value = 10 row + column.
  const std::vector<float> stored = {10, 20, 11, 21, 12, 22};  // (column, row)
  std::vector<float> target(4 * 3, -1);
  const std::int64_t copied =
      copy_overlap({.data = reinterpret_cast<const std::byte*>(stored.data()),
                    .dtype = DType::F32,
                    .box = {{1, 0}, {2, 3}},
                    .strides = {1, 2}},
                   {.data = target.data() + 3, .box = {{1, 0}, {1, 3}}, .strides = {3, 1}});
  CHECK(copied == 3);
  CHECK(target == std::vector<float>{-1, -1, -1, 10, 11, 12, -1, -1, -1, -1, -1, -1});
}

TEST_CASE("half precision follows IEEE 754", "[runtime][tensor_box]") {
  // Bit patterns and values of the standard's binary16.
  const std::pair<std::uint16_t, float> known[] = {
      {0x0000, 0.0F},     {0x3c00, 1.0F},     {0xc000, -2.0F},      {0x7bff, 65504.0F},
      {0x0400, 0x1p-14F}, {0x0001, 0x1p-24F}, {0x03ff, 0x3ffp-24F}, {0x3555, 0.333251953125F}};
  for (const auto& [bits, value] : known) {
    CHECK(half(bits) == value);
    CHECK(narrow(value, DType::F16) == bits);
  }
  CHECK(narrow(-0.0F, DType::F16) == 0x8000);
  CHECK(std::isinf(half(0x7c00)));
  CHECK(std::isnan(half(0x7c01)));
  CHECK(narrow(65519.0F, DType::F16) == 0x7bff);
  CHECK(narrow(65520.0F, DType::F16) == 0x7c00);         // half way: the even neighbour is infinity
  CHECK(narrow(1.0F + 0x1p-11F, DType::F16) == 0x3c00);  // a tie goes to even
  CHECK(narrow(1.0F + 3 * 0x1p-11F, DType::F16) == 0x3c02);  // up, to even
  CHECK(narrow(0x1p-25F, DType::F16) == 0x0000);             // a tie below the smallest
  CHECK(narrow(std::numeric_limits<float>::quiet_NaN(), DType::F16) == 0x7e00);
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)  // every finite half survives a round trip
    if ((bits & 0x7c00) != 0x7c00)
      CHECK(narrow(half(static_cast<std::uint16_t>(bits)), DType::F16) == bits);
}

TEST_CASE("bfloat16 rounds to nearest even", "[runtime][tensor_box]") {
  CHECK(narrow(1.0F, DType::BF16) == 0x3f80);
  CHECK(narrow(1.0F + 0x1p-8F, DType::BF16) == 0x3f80);
  CHECK(narrow(1.0F + 3 * 0x1p-8F, DType::BF16) == 0x3f82);
  CHECK(narrow(-std::numeric_limits<float>::infinity(), DType::BF16) == 0xff80);
  CHECK((narrow(std::bit_cast<float>(0x7f800001U), DType::BF16) & 0x7f) != 0);  // stays NaN
}

}  // namespace meshplan::runtime
