#include "program/certificate/exact_check.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "program/certificate/agreement.hpp"

namespace meshplan::program {
namespace {

constexpr double kSubnormal = 1e-40;  // of fp32; no file holds it
constexpr double kInfinity = std::numeric_limits<double>::infinity();

ExactCheck messages(std::int64_t checked) {
  return {.what = std::string(kMessage), .name = "all_gather of tp", .checked = checked};
}

}  // namespace

TEST_CASE("what all ranks have checked is one figure a kind", "[certificate]") {
  std::vector<ExactCheck> all = {messages(10)};
  add_checks(all, {messages(20), {.what = std::string(kCopies), .name = "weights", .checked = 7}});
  const std::vector<Compared> figures = exact_figures(all);
  REQUIRE(figures.size() == 2);
  CHECK(figures[0].name == "all_gather of tp");
  CHECK(figures[0].checked == 30);
  CHECK(figures[1].checked == 7);
  for (const Compared& figure : figures) {
    CHECK(is_exact(figure));
    CHECK(figure.agrees());
    CHECK(figure.share() == 0);
    CHECK(differing(figure) == 0);
  }
  CHECK_FALSE(is_exact({.what = "gradient"}));
}

TEST_CASE("each difference is a figure, a few are described, all are counted", "[certificate]") {
  ExactCheck check = messages(1000);
  for (int i = 0; i < 20; ++i)
    add_difference(check, differing_element("call " + std::to_string(i), {i}, 1.0001, 1));
  std::vector<ExactCheck> all = {check};
  add_checks(all, {check});
  const std::vector<Compared> figures = exact_figures(all);
  REQUIRE(figures.size() == 1 + kNamedDifferences);
  CHECK(figures[0].difference == Approx(40.0 / 2000));
  CHECK(differing(figures[0]) == 40);
  CHECK(figures[3].name == "call 2");
  CHECK(figures[3].where == std::vector<std::int64_t>{2});
  CHECK(figures[3].difference == Approx(1e-4));
  for (const Compared& figure : figures) CHECK_FALSE(figure.agrees());
}

TEST_CASE("two patterns of one number differ, and every difference can be written",
          "[certificate]") {
  ExactCheck check = messages(5);
  add_difference(check, differing_element("sign of a zero", {0}, -0.0, 0.0));
  add_difference(check, differing_element("subnormal", {0}, kSubnormal, 0));
  add_difference(check, differing_element("infinite", {0}, kInfinity, 1));
  add_difference(check, differing_element("large", {0}, 3e38, -1e-38));
  const std::vector<ExactCheck> read = parse_exact_checks(to_json({check}), "test");
  REQUIRE(read.size() == 1);
  REQUIRE(read[0].first.size() == 4);
  for (const BitDifference& difference : read[0].first) CHECK(difference.difference > 0);
  CHECK(read[0].first[1].value == 0);
  CHECK_FALSE(read[0].first[2].value);
  CHECK_FALSE(read[0].first[3].value);
}

}  // namespace meshplan::program
