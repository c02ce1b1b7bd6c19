#include "formats/text/documents.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "core/error.hpp"
#include "formats/text/quoting.hpp"
#include "formats/text/settings.hpp"

namespace meshplan::planner {
namespace {

std::string error_of(Json (*parse)(std::string_view, const std::string&), std::string_view text) {
  try {
    parse(text, "file");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string repeated(std::string_view piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

using Catch::Matchers::Contains;

}  // namespace

// What PyYAML 6.0 makes of the same text (yaml.safe_load), but for 1e-5, which it takes for a text.
TEST_CASE("Plain YAML scalars mean what they mean to PyYAML", "[formats][yaml]") {
  const Json read = parse_yaml(
      "a: 1_000\nb: 1.5e+3\nc: yes\nd: 'yes'\ne: ~\nf: 0.25\ng: off\nh: 1e-5\ni: 1f1b\nj: -3\n"
      "k: \"a\\nb\"\nl: [1, two, {m: n}, [[3], []]]\no:\n- p: 1\n  q: 2\n",
      "file");
  const Json expected = Json::parse(
      R"({"a": 1000, "b": 1500.0, "c": true, "d": "yes", "e": null, "f": 0.25, "g": false,
          "h": 1e-05, "i": "1f1b", "j": -3, "k": "a\nb", "l": [1, "two", {"m": "n"}, [[3], []]],
          "o": [{"p": 1, "q": 2}]})");
  CHECK(read == expected);
}

TEST_CASE("YAML's merge keys give way to the keys beside them", "[formats][yaml]") {
  const Json read = parse_yaml("base: &b {x: 1, y: 2}\nown:\n  <<: *b\n  y: 3\n", "file");
  CHECK(read["own"]["x"] == 1);
  CHECK(read["own"]["y"] == 3);
}

TEST_CASE("What is no YAML, or not plain data, is refused with its place", "[formats][yaml]") {
  CHECK_THAT(error_of(parse_yaml, "a: [1, 2\nb: 3"), Contains("file:2") && Contains("not valid"));
  CHECK_THAT(error_of(parse_yaml, "a: !!python/object:os.system x"),
             Contains("file:1:4") && Contains("tag"));
  CHECK_THAT(error_of(parse_yaml, "a: 1\na: 2\n"), Contains("file:2:1") && Contains("twice"));
  CHECK_THAT(error_of(parse_yaml, "[1, 2]: x\n"), Contains("a key must be a word"));
  CHECK_THAT(error_of(parse_yaml, ""), Contains("no YAML document"));
  CHECK_THAT(error_of(parse_yaml, "a: &x [*x]"), Contains("file:1"));
}

TEST_CASE("Hostile YAML is refused before it takes time or memory", "[formats][yaml][hostile]") {
  // Each level holds nine of the one before: 9^9 values.
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 10; ++i)
    bomb += fmt::format("a{0}: &a{0} [*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1}]\n", i,
                        i - 1);
  CHECK_THAT(error_of(parse_yaml, bomb), Contains("aliases followed"));
  for (const char* opening : {"[", "- ", "{a: ", "? ", "[{", "a:\n "})
    CHECK_FALSE(error_of(parse_yaml, repeated(opening, 50000)).empty());
  std::string deep;
  for (int i = 0; i < 70; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  CHECK_THAT(error_of(parse_yaml, deep + std::string(70, ' ') + "1"), Contains("deeper than 64"));
  CHECK_THAT(error_of(parse_yaml, repeated("a", 300000)), Contains("at most 262144"));
  std::string keys;
  for (int i = 0; i < 20000; ++i) keys += fmt::format("k{}: 1\n", i);
  CHECK_THAT(error_of(parse_yaml, keys), Contains("more than 16384 values"));
  std::string anchors = "x: ";
  for (int i = 0; i < 60; ++i) anchors += fmt::format("&b{} [", i);
  CHECK_FALSE(error_of(parse_yaml, anchors).empty());
}

TEST_CASE("TOML gives the same tree as JSON", "[formats][toml]") {
  const Json read = parse_toml(
      "# preset\n[a.b]\nx = 1_000\ny = -1.5e3\nz = [\"p\", 'q']\non = true\nday = 2026-02-23\n"
      "[[c]]\nn = 1\n[[c]]\nn = 2\n",
      "file");
  const Json expected = Json::parse(
      R"({"a": {"b": {"day": "2026-02-23", "on": true, "x": 1000, "y": -1500.0, "z": ["p", "q"]}},
          "c": [{"n": 1}, {"n": 2}]})");
  CHECK(read == expected);
}

TEST_CASE("What is no TOML is refused with its place", "[formats][toml]") {
  CHECK_THAT(error_of(parse_toml, "[a]\nb = \n"), Contains("file:2") && Contains("not valid TOML"));
  CHECK_THAT(error_of(parse_toml, "a = 1\na = 2\n"), Contains("file:2"));
}

TEST_CASE("Hostile TOML is refused", "[formats][toml][hostile]") {
  CHECK_THAT(error_of(parse_toml, "a = " + repeated("[", 100000)), Contains("deeper than 64"));
  CHECK_THAT(error_of(parse_toml, "a = " + repeated("[", 100) + repeated("]", 100)),
             Contains("deep"));
  for (const char* key : {"[K]", "K = 1", "a = {K = 1}", "[[K]]"}) {
    std::string text = key;
    text.replace(text.find('K'), 1, repeated("a.", 60000) + "a");
    CHECK_THAT(error_of(parse_toml, text), Contains("deeper than 64"));
  }
  CHECK(error_of(parse_toml, "a = '" + repeated("[.", 1000) + "' # " + repeated("[", 99)).empty());
  CHECK_FALSE(error_of(parse_toml, "a = 99999999999999999999").empty());
  CHECK_THAT(error_of(parse_toml, repeated("#\n", 200000)), Contains("at most 262144"));
}

// A document that is written must come back as it was, whatever is in its texts.
TEST_CASE("Written YAML is read back as it was", "[formats][yaml]") {
  const Json values = {
      {"plain", "flash_attention_2"},
      {"words", {"yes", "No", "null", "~", "1f1b", "1e5", "0x1F", "12:30", ""}},
      {"odd key: [x]", "a: b # c"},
      {"lines", "one\ntwo\ttab \"quoted\" 'single' \\ back"},
      {"numbers", {1, -2.5, 1e-05, 3e20, 1.0, true, nullptr}},
      {"nested",
       {{"list", {{{"a", 1}, {"b", {1, 2}}}, {{"c", Json::object()}}}}, {"empty", Json::array()}}}};
  CHECK(parse_yaml(yaml_document(values), "file") == values);
}

TEST_CASE("Values are read by type and range, and what nobody asked for is listed",
          "[formats][settings]") {
  Settings in(Json::parse(R"({"a": {"size": 8, "sze": 4, "whole": 5e8, "half": 0.5, "on": "yes",
                              "open": "auto", "mode": "RING"}, "rest": [1, 2]})"),
              "f.json", "auto");
  CHECK(in.integer("a.size") == 8);
  CHECK(in.integer("a.whole", between(1, 1e12)) == 500'000'000);
  CHECK_FALSE(in.integer("a.open"));
  CHECK(in.left_open() == std::vector<std::string>{"a.open"});
  CHECK_FALSE(in.integer("a.size_of"));
  constexpr std::array<std::string_view, 2> kModes = {"ring", "gather"};
  CHECK(in.word("a.mode", kModes) == "ring");
  CHECK_THROWS_WITH(in.integer("a.half", between(0, 9)),
                    Contains("f.json: a.half: expected an integer, got 0.5"));
  CHECK_THROWS_WITH(in.integer("a.size", between(1, 4)), Contains("at most 4; nearest: 4, got 8"));
  CHECK_THROWS_WITH(in.flag("a.on"), Contains("a.on: expected true or false, got \"yes\""));
  constexpr std::array<std::string_view, 2> kOthers = {"rung", "gather"};
  CHECK_THROWS_WITH(in.word("a.mode", kOthers), Contains("did you mean 'rung'"));
  const std::vector<std::string> unread = in.unread();
  REQUIRE(unread.size() == 2);
  CHECK_THAT(unread[0], Contains("a.sze = 4"));
  CHECK(unread[1] == "rest = [1,2]");
}

TEST_CASE("A key that is nearly a known one is listed with it", "[formats][settings]") {
  Settings in(Json::parse(R"({"a": {"tensor_parallel_degre": 8}})"), "f.json");
  CHECK_FALSE(in.integer("a.tensor_parallel_degree"));
  REQUIRE(in.unread().size() == 1);
  CHECK_THAT(in.unread()[0], Contains("did you mean 'tensor_parallel_degree'"));
}

}  // namespace meshplan::planner
