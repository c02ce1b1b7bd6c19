#include "core/json_fields.hpp"

#include <catch2/catch.hpp>
#include <limits>

namespace meshplan {
namespace test {

enum class Colour { Red, Green };

struct Wheel {
  double radius_m = 0.3;
  bool spare = false;
  bool operator==(const Wheel&) const = default;
};

struct Cart {
  std::string name;
  int seats = 0;
  std::int64_t bytes = 7;
  std::uint64_t id = 0;
  Colour colour = Colour::Red;
  std::optional<int> limit = 3;
  Wheel wheel;
  std::vector<Wheel> wheels;
  std::map<std::string, int> parts;
  RawJson extra;
};

template <class Visitor>
void fields(Visitor& v, Wheel& w) {
  v.optional("radius_m", w.radius_m, "radius in metres", between(0, 2));
  v.optional("spare", w.spare, "not mounted");
}

template <class Visitor>
void fields(Visitor& v, Cart& c) {
  v.required("name", c.name, "what it is called");
  v.required("seats", c.seats, "people it carries", at_least(1));
  v.optional("bytes", c.bytes, "size");
  v.optional("id", c.id, "identity");
  v.optional("colour", c.colour, "paint");
  v.optional("limit", c.limit, "speed; null = none", at_least(0));
  v.optional("wheel", c.wheel, "the steering one");
  v.optional("wheels", c.wheels, "the others");
  v.optional("parts", c.parts, "by name", at_least(0));
  v.optional("extra", c.extra, "kept as it is");
}

}  // namespace test

template <>
struct EnumNames<test::Colour> {
  static constexpr std::array<std::pair<test::Colour, std::string_view>, 2> value = {
      {{test::Colour::Red, "red"}, {test::Colour::Green, "green"}}};
};

namespace test {
namespace {

/// A valid file with `more` keys behind the required ones.
std::string cart(const std::string& more = "") {
  return R"({"name": "a", "seats": 2)" + (more.empty() ? "" : ", " + more) + "}";
}

Cart read(const std::string& text) {
  return read_json<Cart>(text, "cart.json");
}

std::string error_of(const std::string& text) {
  try {
    read(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

using Catch::Contains;
using Catch::StartsWith;

}  // namespace

TEST_CASE("A misspelt key is refused with file, path and the nearest known key", "[core][json]") {
  CHECK_THAT(error_of(cart(R"("color": "red")")),
             StartsWith("cart.json: color: unknown key; did you mean 'colour'?"));
  CHECK_THAT(error_of(cart(R"("wheels": [{}, {"radius": 1}])")),
             StartsWith("cart.json: wheels[1].radius: unknown key; did you mean 'radius_m'?"));
}

TEST_CASE("A misspelt required key is named, rather than reported missing", "[core][json]") {
  CHECK_THAT(error_of(R"({"name": "a", "seat": 2})"),
             StartsWith("cart.json: seat: unknown key; did you mean 'seats'?"));
}

TEST_CASE("Missing required keys are all named", "[core][json]") {
  CHECK_THAT(error_of(R"({"name": "a"})"), StartsWith("cart.json: seats: required key is missing"));
  const std::string both = error_of("{}");
  CHECK_THAT(both, Contains("name: required key is missing") && Contains("1 more: seats"));
}

TEST_CASE("A value of the wrong type is quoted with what was expected", "[core][json]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("bytes": 1.5)", "bytes: expected an integer, got 1.5"},
      {R"("bytes": "1")", "bytes: expected an integer, got \"1\""},
      {R"("bytes": 9223372036854775808)", "bytes: expected an integer, got 9223372036854775808"},
      {R"("id": -1)", "id: expected an integer of at least 0, got -1"},
      {R"("colour": 3)", "colour: expected one of red, green, got 3"},
      {R"("wheel": [])", "wheel: expected an object, got []"},
      {R"("wheel": {"spare": 1})", "wheel.spare: expected true or false, got 1"},
      {R"("wheel": {"radius_m": true})", "wheel.radius_m: expected a number, got true"},
      {R"("wheels": {})", "wheels: expected a list, got {}"},
      {R"("wheels": [1])", "wheels[0]: expected an object, got 1"},
      {R"("parts": {"axle": "x"})", "parts.axle: expected an integer, got \"x\""},
      {R"("limit": "none")", "limit: expected an integer, got \"none\""},
  };
  for (const auto& [text, message] : cases) CHECK(error_of(cart(text)) == "cart.json: " + message);
  CHECK(error_of(R"({"name": 1, "seats": 2})") == "cart.json: name: expected a string, got 1");
  CHECK(error_of("[]") == "cart.json: expected a JSON object, got array");
}

TEST_CASE("A long value is cut when it is quoted", "[core][json]") {
  const std::string message = error_of(cart(R"("bytes": ")" + std::string(5000, 'x') + '"'));
  CHECK(message.size() < 200);
  CHECK_THAT(message, Catch::EndsWith("..."));
}

TEST_CASE("Bounds hold for numbers, and inside lists, maps and optional values", "[core][json]") {
  CHECK_THAT(error_of(R"({"name": "a", "seats": 0})"),
             Contains("seats: expected a number of at least 1, got 0"));
  CHECK_THAT(error_of(cart(R"("wheel": {"radius_m": 2.5})")),
             Contains("wheel.radius_m: expected a number of at most 2, got 2.5"));
  CHECK_THAT(error_of(cart(R"("parts": {"axle": -1})")),
             Contains("parts.axle: expected a number of at least 0, got -1"));
  CHECK_THAT(error_of(cart(R"("limit": -4)")), Contains("limit: expected a number of at least 0"));
  CHECK(read(cart(R"("wheel": {"radius_m": 2})")).wheel.radius_m == 2.0);  // both are inclusive
}

TEST_CASE("An integer that does not fit its type is refused, not wrapped", "[core][json]") {
  CHECK_THAT(error_of(R"({"name": "a", "seats": 4294967297})"), Contains("a 32-bit integer"));
  CHECK(read(cart(R"("bytes": 9223372036854775807)")).bytes ==
        std::numeric_limits<std::int64_t>::max());
  CHECK(read(cart(R"("id": 18446744073709551615)")).id ==
        std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("A number beyond the range of a double is an error of the file", "[core][json]") {
  CHECK_THAT(error_of(cart(R"("wheel": {"radius_m": 1e999})")),
             StartsWith("cart.json:1:") && Contains("1e999"));
}

TEST_CASE("A number whose products would leave the range of a double is refused", "[core][json]") {
  CHECK_THAT(
      error_of(cart(R"("wheel": {"radius_m": 5e-324})")),
      StartsWith("cart.json: wheel.radius_m: expected 0 or a number of size 1e-30 to 1e+30"));
  CHECK(error_of(cart(R"("wheel": {"radius_m": 0})")) == "accepted");
  CHECK(error_of(cart(R"("wheel": {"radius_m": 1e-30})")) == "accepted");
}

TEST_CASE("A key that appears twice is refused, also inside another object", "[core][json]") {
  CHECK_THAT(error_of(R"({"name": "a", "name": "b", "seats": 2})"),
             Contains("cart.json: the key 'name' appears twice"));
  CHECK_THAT(error_of(cart(R"("wheel": {"spare": true, "spare": true})")),
             Contains("the key 'spare' appears twice"));
  CHECK_NOTHROW(read(cart(R"("wheels": [{"spare": true}, {"spare": true}])")));
}

TEST_CASE("A syntax error names line and column", "[core][json]") {
  CHECK_THAT(error_of("{\n  \"name\": \"a\",\n  \"seats\" 2\n}"),
             StartsWith("cart.json:3:11: not valid JSON"));
  CHECK_THAT(error_of("{\"name\": }"), StartsWith("cart.json:1:10: not valid JSON"));
  CHECK_THAT(error_of(""), StartsWith("cart.json:1:"));
  CHECK_THAT(error_of("{} x"), StartsWith("cart.json:1:4: not valid JSON"));
  CHECK_THAT(error_of("{\"name\": \"\xff\"}"), StartsWith("cart.json:1:"));  // not UTF-8
}

TEST_CASE("A file nested deeper than any of ours is refused, not followed", "[core][json]") {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  CHECK_THAT(error_of(cart("\"bytes\": " + deep)), Contains("nested deeper than"));
}

TEST_CASE("An enum is read by name, and a misspelt name gets the nearest", "[core][json]") {
  CHECK(read(cart(R"("colour": "green")")).colour == Colour::Green);
  CHECK(error_of(cart(R"("colour": "gren")")) ==
        "cart.json: colour: unknown value 'gren'; did you mean 'green'? known: green, red");
}

TEST_CASE("null empties an optional value; an absent key keeps its default", "[core][json]") {
  CHECK_FALSE(read(cart(R"("limit": null)")).limit.has_value());
  CHECK(read(cart()).limit == 3);
  CHECK(read(cart(R"("limit": 9)")).limit == 9);
  CHECK_THAT(error_of(cart(R"("bytes": null)")), Contains("expected an integer, got null"));
}

TEST_CASE("Defaults that were assumed are reported with their paths", "[core][json]") {
  std::vector<std::string> assumed;
  read_json<Cart>(cart(R"("bytes": 1, "id": 2, "limit": 3, "wheel": {"spare": true},
                           "wheels": [], "parts": {}, "extra": 0)"),
                  "cart.json", &assumed);
  CHECK(assumed == std::vector<std::string>{"colour = \"red\"", "wheel.radius_m = 0.3"});
}

TEST_CASE("What is written reads back equal, in the order of declaration", "[core][json]") {
  const Cart original = read(cart(
      R"("bytes": -5, "id": 18446744073709551615, "colour": "green", "limit": null,
         "wheel": {"radius_m": 0.1, "spare": true}, "wheels": [{}, {"spare": true}],
         "parts": {"axle": 2, "nut": 8}, "extra": {"free": [1, null]})"));
  const Json written = write_json(original);
  const Cart again = read(written.dump());
  CHECK(again.bytes == -5);
  CHECK(again.id == std::numeric_limits<std::uint64_t>::max());
  CHECK(again.colour == Colour::Green);
  CHECK_FALSE(again.limit.has_value());
  CHECK(again.wheel == Wheel{.radius_m = 0.1, .spare = true});  // 0.1 exactly: shortest digits
  CHECK(again.wheels == std::vector<Wheel>{{}, {.spare = true}});
  CHECK(again.parts == std::map<std::string, int>{{"axle", 2}, {"nut", 8}});
  CHECK(again.extra.value == Json::parse(R"({"free": [1, null]})"));
  CHECK_THAT(written.dump(), StartsWith(R"({"name":"a","seats":2,"bytes":-5,)"));
}

TEST_CASE("The schema states types, bounds, defaults and that nothing else may appear",
          "[core][json]") {
  const Json schema = json_schema<Cart>();
  CHECK(schema["type"] == "object");
  CHECK(schema["required"] == Json::parse(R"(["name", "seats"])"));
  CHECK(schema["additionalProperties"] == false);
  const Json& properties = schema["properties"];
  CHECK(properties["seats"] ==
        Json::parse(R"({"type": "integer", "minimum": 1.0, "description": "people it carries"})"));
  CHECK(properties["colour"]["enum"] == Json::parse(R"(["red", "green"])"));
  CHECK(properties["colour"]["default"] == "red");
  CHECK(properties["limit"]["anyOf"][1]["type"] == "null");
  CHECK(properties["limit"]["anyOf"][0]["minimum"] == 0.0);
  CHECK(properties["wheel"]["properties"]["radius_m"]["maximum"] == 2.0);
  CHECK(properties["wheel"]["properties"]["radius_m"]["default"] == 0.3);
  CHECK(properties["wheels"]["items"]["additionalProperties"] == false);
  CHECK(properties["parts"]["additionalProperties"]["type"] == "integer");
  CHECK_FALSE(properties["extra"].contains("type"));  // any value
}

TEST_CASE("Every enum value needs a name", "[core][json]") {
  CHECK(name_of(Colour::Green) == "green");
  CHECK_THROWS_AS(name_of(static_cast<Colour>(7)), InvariantError);
}

}  // namespace test
}  // namespace meshplan
