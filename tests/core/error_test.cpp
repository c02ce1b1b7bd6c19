#include "core/error.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>

namespace meshplan {
namespace {

/// The definition, tried number by number.
int nearest_divisor_by_trial(int number, int wanted) {
  int best = 1;
  for (int divisor = 2; divisor <= number; ++divisor)
    if (number % divisor == 0 && std::abs(divisor - wanted) < std::abs(best - wanted))
      best = divisor;
  return best;
}

}  // namespace

TEST_CASE("The nearest choice has the smallest edit distance", "[core][error]") {
  const std::vector<std::string> keys = {"num_heads", "num_layers", "hidden_size"};
  CHECK(nearest_choice("num_head", keys) == "num_heads");        // one insertion
  CHECK(nearest_choice("nun_layers", keys) == "num_layers");     // one substitution
  CHECK(nearest_choice("hiddden_size", keys) == "hidden_size");  // one deletion
  CHECK(nearest_choice("anything", {}) == "");
}

TEST_CASE("Among choices at equal distance the first one wins", "[core][error]") {
  const std::vector<std::string> names = {"dp", "tp", "pp"};
  CHECK(nearest_choice("xp", names) == "dp");
}

TEST_CASE("The message of an unknown name lists every choice in order", "[core][error]") {
  CHECK(unknown_name_message("preset", "lama", {"llama", "gpt2"}) ==
        "unknown preset 'lama'; did you mean 'llama'? known: gpt2, llama");
}

TEST_CASE("The nearest divisor divides and ties go to the smaller", "[core][error]") {
  CHECK(nearest_divisor(12, 5) == 4);  // 4 and 6 are equally near
  CHECK(nearest_divisor(6, 4) == 3);
  CHECK(nearest_divisor(32, 24) == 16);
  CHECK(nearest_divisor(7, 3) == 1);
  CHECK(nearest_divisor(8, 100) == 8);
  CHECK(nearest_divisor(8, -5) == 1);
  CHECK(nearest_divisor(1, 1) == 1);
  CHECK(nearest_divisor(0, 4) == 1);
}

TEST_CASE("The nearest divisor agrees with trying every number", "[core][error]") {
  for (int number = 1; number <= 60; ++number)
    for (int wanted = -1; wanted <= 70; ++wanted) {
      CAPTURE(number, wanted);
      REQUIRE(nearest_divisor(number, wanted) == nearest_divisor_by_trial(number, wanted));
    }
}

TEST_CASE("The nearest divisor of a large prime is found without trying every number",
          "[core][error]") {
  CHECK(nearest_divisor(2'147'483'647, 64) == 1);   // 2^31 - 1, Mersenne
  CHECK(nearest_divisor(2'147'483'646, 64) == 63);  // 2 * 3^2 * 7 * 11 * 31 * 151 * 331
}

TEST_CASE("A broken invariant names its place and is no ConfigError", "[core][error]") {
  CHECK_NOTHROW(require_invariant(true, "fine"));
  CHECK_THROWS_WITH(
      require_invariant(false, "two heads"),
      Catch::Contains("internal error: two heads") && Catch::Contains("error_test.cpp:"));
  CHECK_THROWS_AS(require_invariant(false, ""), std::logic_error);
}

}  // namespace meshplan
