#include "core/statistics.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"

namespace meshplan {

TEST_CASE("a quantile lies between the two nearest values", "[core][statistics]") {
  // Sorted 1 2 3 4: place = fraction * 3.
  CHECK(quantile({4, 1, 3, 2}, 0) == 1);
  CHECK(quantile({4, 1, 3, 2}, 1) == 4);
  CHECK(quantile({4, 1, 3, 2}, 0.25) == Approx(1.75));
  CHECK(quantile({4, 1, 3, 2}, 0.9) == Approx(3.7));
  CHECK(quantile({7}, 0.9) == 7);
}

TEST_CASE("the median of an even number of values is the mean of the middle two",
          "[core][statistics]") {
  CHECK(median({10, 1, 2}) == 2);
  CHECK(median({10, 1, 2, 4}) == 3);
}

TEST_CASE("a spread holds median, 10th and 90th percentile", "[core][statistics]") {
  // Sorted 1 2 3 4 5: places 2, 0.4 and 3.6.
  const Spread spread = spread_of({5, 1, 4, 2, 3});
  CHECK(spread.median == 3);
  CHECK(spread.p10 == Approx(1.4));
  CHECK(spread.p90 == Approx(4.6));
  CHECK(spread_of({7}) == Spread{7, 7, 7});
}

TEST_CASE("nothing cannot be summarized", "[core][statistics]") {
  CHECK_THROWS_AS(median({}), InvariantError);
  CHECK_THROWS_AS(spread_of({}), InvariantError);
  CHECK_THROWS_AS(quantile({1, 2}, 1.5), InvariantError);
}

}  // namespace meshplan
