// What rounding allows of a sum: every order that a collective may take passes, an element that is
// off by 1e-4 does not.
#include "certify/sum_check.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>

#include "comm/reduction.hpp"
#include "runtime/comm/elements.hpp"

namespace meshplan::test::sum_check {
namespace {

using runtime::first_odd_element;
using runtime::is_reducible;
using runtime::ReduceOp;
using runtime::SumPart;

constexpr std::int64_t kElements = 500;

using Memory = std::vector<std::byte>;

template <class T>
Memory bytes_of(const std::vector<T>& values) {
  Memory bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Normal numbers, those of each rank 10 times those of the one before.
Memory numbers(DType dtype, int rank, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Memory bytes(static_cast<std::size_t>(kElements * size_of(dtype)));
  for (std::int64_t i = 0; i < kElements; ++i) {
    const float value = normal(random) * std::pow(10.0F, static_cast<float>(rank % 3));
    runtime::contract::encode(bytes.data() + i * size_of(dtype), dtype, static_cast<double>(value));
  }
  return bytes;
}

struct Inputs {
  std::vector<Memory> given;
  SumPart part;
  Memory result;

  Inputs(DType dtype, ReduceOp op, int ranks, std::mt19937& random) {
    for (int rank = 0; rank < ranks; ++rank) given.push_back(numbers(dtype, rank, random));
    part = {.reduce = op, .dtype = dtype, .count = kElements};
    for (const Memory& one : given) part.given.push_back(one.data());
    result.resize(given.front().size());
    part.result = result.data();
  }

  /// As a ring that starts at `first`: a partial sum is rounded at each rank.
  void add_from(int first) {
    const int ranks = static_cast<int>(given.size());
    result = given[static_cast<std::size_t>(first)];
    for (int i = 1; i < ranks; ++i) {
      const std::vector<const void*> two = {
          result.data(), given[static_cast<std::size_t>((first + i) % ranks)].data()};
      const bool last = i == ranks - 1 && part.reduce == ReduceOp::Avg;
      runtime::reduce_in_order(part.dtype, part.reduce, two, result.data(), kElements,
                               last ? ranks : 1);
    }
    part.result = result.data();
  }
};

}  // namespace

TEST_CASE("every order of adding passes", "[certify]") {
  std::mt19937 random(3);
  for (const DType dtype : {DType::F64, DType::F32, DType::F16, DType::BF16, DType::I32})
    for (const ReduceOp op :
         {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod})
      for (const int ranks : {2, 3, 8}) {
        if (!is_reducible(dtype, op)) continue;
        Inputs inputs(dtype, op, ranks, random);
        for (int first = 0; first < ranks; ++first) {
          inputs.add_from(first);
          INFO(name_of(dtype) << ", reduction " << static_cast<int>(op) << ", " << ranks
                              << " ranks from " << first);
          CHECK_FALSE(first_odd_element(inputs.part));
        }
      }
}

// In a ledger messages of other dtypes stand before them; under sanitizers a number that is read
// where it may not lie ends the test.
TEST_CASE("inputs may lie anywhere", "[certify]") {
  std::mt19937 random(6);
  for (const DType dtype : {DType::F64, DType::F32, DType::F16})
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max}) {
      Inputs inputs(dtype, op, 2, random);
      inputs.add_from(0);
      for (std::size_t rank = 0; rank < 2; ++rank) {
        inputs.given[rank].insert(inputs.given[rank].begin(), std::byte{1});
        inputs.part.given[rank] = inputs.given[rank].data() + 1;
      }
      CHECK_FALSE(first_odd_element(inputs.part));
    }
}

TEST_CASE("a sum that is off by 1e-4 of its largest input is seen", "[certify]") {
  std::mt19937 random(4);
  for (const int ranks : {2, 3, 8}) {
    Inputs inputs(DType::F32, ReduceOp::Sum, ranks, random);
    inputs.add_from(0);
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{77}, kElements - 1}) {
      double largest = 0;
      for (const Memory& given : inputs.given) {
        float one = 0;
        std::memcpy(&one, given.data() + 4 * i, sizeof one);
        largest = std::max(largest, std::abs(double{one}));
      }
      const Memory right = inputs.result;
      float sum = 0;
      std::memcpy(&sum, right.data() + 4 * i, sizeof sum);
      const auto wrong = static_cast<float>(double{sum} + 1e-4 * largest);
      std::memcpy(inputs.result.data() + 4 * i, &wrong, sizeof wrong);
      const auto odd = first_odd_element(inputs.part);
      REQUIRE(odd);
      CHECK(odd->index == i);
      CHECK(odd->value == double{wrong});
      CHECK(odd->expected == Approx(double{sum}));
      std::memcpy(inputs.result.data(), right.data(), right.size());
    }
  }
}

TEST_CASE("over two ranks a sum has one result, to the bit", "[certify]") {
  std::mt19937 random(5);
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    Inputs inputs(dtype, ReduceOp::Sum, 2, random);
    inputs.add_from(1);
    CHECK_FALSE(first_odd_element(inputs.part));
    inputs.result[static_cast<std::size_t>(5 * size_of(dtype))] ^= std::byte{1};
    const auto odd = first_odd_element(inputs.part);
    REQUIRE(odd);
    CHECK(odd->index == 5);
  }
}

TEST_CASE("a minimum is one of its inputs, and a zero may have either sign", "[certify]") {
  const std::vector<float> zeros = {0.0F, -0.0F, 1.0F}, negative = {-0.0F, 0.0F, 2.0F};
  std::vector<float> result = {-0.0F, 0.0F, 1.0F};
  const Memory a = bytes_of(zeros), b = bytes_of(negative);
  Memory c = bytes_of(result);
  const SumPart part{.reduce = ReduceOp::Min,
                     .dtype = DType::F32,
                     .count = 3,
                     .given = {a.data(), b.data(), a.data()},
                     .result = c.data()};
  CHECK_FALSE(first_odd_element(part));
  c[8] ^= std::byte{1};
  REQUIRE(first_odd_element(part));
  CHECK(first_odd_element(part)->index == 2);
}

}  // namespace meshplan::test::sum_check
