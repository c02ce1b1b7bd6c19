#include "reports/validation/operator_report.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"

namespace meshplan::reports {
namespace {

using Catch::Contains;

sim::OperatorReport one_device(double formula) {
  return {.errors = {{.file = "gemm.csv",
                      .device = "h100_sxm",
                      .group = "",
                      .rows = 7,
                      .formula = formula,
                      .bias = -0.01,
                      .interpolated = 0.02,
                      .left_out = 0.05}},
          .unpriced = {"x: no preset holds its data sheet"}};
}

}  // namespace

TEST_CASE("Errors of operators are printed beside their targets", "[reports][operators]") {
  const std::string text = to_text(one_device(0.034));
  CHECK_THAT(text, Contains("3.4 %") && Contains("-1.0 %") && Contains("met"));
  CHECK_THAT(text, Contains("not priced: x: no preset"));
  CHECK_THAT(to_text(one_device(0.13)), Contains("not met"));  // more than 12 %
}

// Half a percentage point is allowed.
TEST_CASE("Operators that got worse than committed are named", "[reports][operators]") {
  const std::string committed = to_json(one_device(0.03));
  CHECK(worse_operators(one_device(0.034), committed, "c.json").empty());
  const auto worse = worse_operators(one_device(0.036), committed, "c.json");
  REQUIRE(worse.size() == 1);
  CHECK_THAT(worse.front(), Contains("gemm.csv h100_sxm") && Contains("formula"));
  CHECK_THROWS_WITH(worse_operators(one_device(0.03), "{}", "c.json"),
                    Contains("c.json: operators"));
  CHECK_THROWS_AS(worse_operators(one_device(0.03), "[", "c.json"), ConfigError);
}

}  // namespace meshplan::reports
