#include "core/relaxed_json.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "core/json_fields.hpp"

namespace meshplan {

TEST_CASE("Comments and last commas are passed over, strings are not", "[core][json]") {
  const Json value = parse_json(without_json_comments(R"({
    // of the trainer
    "a": 1,  # as Hjson has it
    /* two
       lines */ "b": "http://x # y, }",
    "c": [1, 2, /* none */ ],
    "d": "a \" // quoted",
  })"),
                                "ds.json");
  CHECK(value["a"] == 1);
  CHECK(value["b"] == "http://x # y, }");
  CHECK(value["c"].size() == 2);
  CHECK(value["d"] == "a \" // quoted");
  CHECK_THROWS_AS(parse_json(without_json_comments("{\"a\": 1,,}"), "ds.json"), ConfigError);
}

TEST_CASE("An error stays on its line behind comments", "[core][json]") {
  const auto failing = [] {
    return parse_json(without_json_comments("{ /* a\n b */ \"x\": oops }"), "ds.json");
  };
  CHECK_THROWS_WITH(failing(), Catch::Matchers::Contains("ds.json:2"));
}

TEST_CASE("Numbers of Python that JSON has no words for are named", "[core][json]") {
  const Json value = parse_json(
      with_named_infinities(R"({"a": [0.0, Infinity], "b": -Infinity, "c": NaN, "d": "NaN"})"),
      "config.json");
  CHECK(value["a"][1] == "Infinity");
  CHECK(value["b"] == "-Infinity");
  CHECK(value["c"] == "NaN");
  CHECK(value["d"] == "NaN");
  CHECK_THROWS_AS(parse_json(with_named_infinities("{\"a\": NaNs}"), "config.json"), ConfigError);
}

}  // namespace meshplan
