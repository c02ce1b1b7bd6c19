#include "core/units.hpp"

#include <catch2/catch.hpp>
#include <concepts>

namespace meshplan {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, Seconds>, "a tag must keep bytes from being added to seconds");
static_assert(!Addable<Bytes, int>);
static_assert(std::same_as<decltype(Bytes{} / Bytes{}), double>);

}  // namespace

TEST_CASE("Quantities of one unit add, subtract, scale and compare", "[core][units]") {
  Bytes total = Bytes{3} + Bytes{4} * 2;
  CHECK(total == Bytes{11});
  total -= Bytes{1};
  CHECK(total == Bytes{10});
  CHECK(5 * Bytes{2} == total);
  CHECK(Bytes{9} < total);
}

TEST_CASE("The ratio of two quantities is a plain number, not truncated", "[core][units]") {
  CHECK(Bytes{1} / Bytes{4} == 0.25);
}

TEST_CASE("Work divided by a rate is a time", "[core][units]") {
  // 312 TFLOP/s, the bf16 peak of an A100; 2 TB at 2 TB/s.
  CHECK((Flops{624e12} / FlopsPerSecond{312e12}).value == Approx(2.0));
  CHECK((Bytes{2'000'000'000'000} / BytesPerSecond{2e12}).value == Approx(1.0));
}

TEST_CASE("Bytes beyond 32 bits are kept exactly", "[core][units]") {
  const Bytes big{(std::int64_t{1} << 53) + 1};  // not a double
  CHECK((big + Bytes{1}).value == 9'007'199'254'740'994);
}

}  // namespace meshplan
