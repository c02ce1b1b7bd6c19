// A list's elements come one by one out of blocks of any size, and nothing is held without bound.
#include "core/json_list.hpp"

#include <catch2/catch.hpp>

#include "support/blocks.hpp"

namespace meshplan {
namespace {

using Catch::Matchers::Contains;

const std::string kText = R"({"before": {"x": [1, {"y": 2}]},
 "list": [{"a": 1, "b": {"c": [true, null]}}, 5, "word", [], {"a": -1.5}],
 "after": "\u00e9nd"})";

struct Read {
  Json root;
  std::vector<Json> elements;
};

Read read(const TextBlocks& text, JsonListReading reading) {
  Read result;
  reading.use = [&](const Json& element, std::size_t index) {
    CHECK(index == result.elements.size());
    result.elements.push_back(element);
  };
  result.root = read_json_list(text, "t.json", reading);
  return result;
}

std::string refusal(const TextBlocks& text, const JsonListReading& reading = {.key = "list"}) {
  try {
    read(text, reading);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

/// `text` again and again.
TextBlocks endless(std::string begin, std::string text) {
  std::string block;
  while (block.size() < 100000) block += text;
  return [begin, block, is_first = true]() mutable {
    return std::string_view(std::exchange(is_first, false) ? begin : block);
  };
}

}  // namespace

TEST_CASE("elements of a list come one by one, the rest as a tree", "[core][json_list]") {
  Json root = Json::parse(kText);
  const std::vector<Json> elements = root["list"];
  root["list"] = Json::array();
  for (const std::size_t bytes : {1, 2, 3, 64, 1000}) {
    const Read result = read(in_blocks(kText, bytes), {.key = "list"});
    CHECK(result.root == root);
    CHECK(result.elements == elements);
    CHECK(read(in_blocks(kText, bytes), {}).root == Json::parse(kText));
  }
}

TEST_CASE("members that are not kept leave nothing", "[core][json_list]") {
  const JsonListReading reading{
      .key = "list", .kept = {{"list", {{"b", {{"c"}}}}}, {"after"}}, .keys_are_unique = false};
  const Read result = read(one_block(kText), reading);
  CHECK(result.root == Json::parse(R"({"list": [], "after": "\u00e9nd"})"));
  CHECK(result.elements == std::vector<Json>{Json::parse(R"({"b": {"c": [true, null]}})"), 5,
                                             "word", Json::array(), Json::object()});
}

TEST_CASE("of a key that repeats the last value counts, or it is refused", "[core][json_list]") {
  const std::string text = R"({"list": [{"a": 1, "a": 2}]})";
  CHECK_THAT(refusal(one_block(text)), Contains("t.json: the key 'a' appears twice"));
  const JsonListReading last{.key = "list", .kept = {{"list", {{"a"}}}}, .keys_are_unique = false};
  CHECK(read(one_block(text), last).elements == std::vector{Json{{"a", 2}}});
}

TEST_CASE("what is no JSON is refused where it stands, in blocks of any size",
          "[core][json_list]") {
  for (const std::size_t bytes : {1, 2, 5, 1000}) {
    CAPTURE(bytes);
    CHECK_THAT(refusal(in_blocks("{\"list\": [1,\n  2 3]}", bytes)),
               Contains("t.json:2:5: not valid"));
    CHECK_THAT(refusal(in_blocks("{\"list\": [1,\n 21e999\n]}", bytes)),
               Contains("t.json:2:2: not valid"));
    CHECK_THAT(refusal(in_blocks("{\"list\": [\"x\n", bytes)), Contains("t.json:1:13: not valid"));
    CHECK_THAT(refusal(in_blocks("{\"list\": [1,\n\n", bytes)), Contains("t.json:3:1: not valid"));
    CHECK_THAT(refusal(in_blocks("", bytes)), Contains("t.json:1:1: not valid"));
  }
}

TEST_CASE("a text without end is refused, however little it holds", "[core][json_list]") {
  const std::string token = "t.json:1:", list = "t.json: list[0] takes more than";
  CHECK_THAT(refusal(endless("{\"list\": [", " ")), Contains(token) && Contains("67108864 bytes"));
  CHECK_THAT(refusal(endless("{\"list\": [\"", "x")),
             Contains(token) && Contains("67108864 bytes"));
  CHECK_THAT(refusal(endless("{\"list\": [", "1")), Contains(token) && Contains("67108864 bytes"));
  CHECK_THAT(refusal(endless("{\"list\": [", "[")),
             Contains("t.json: nested deeper than 64 levels"));
  CHECK_THAT(refusal(endless("{\"list\": [[", "1,")), Contains(list));
  CHECK_THAT(refusal(endless("{\"list\": [[", "[],")), Contains(list));
  CHECK_THAT(refusal(endless("{\"list\": [[", "\"a\",")), Contains(list));
  CHECK_THAT(refusal(endless("{\"more\": [", "1,")),
             Contains("t.json: what it holds takes more than"));
  const JsonListReading skipping{.key = "list", .kept = {{"list", {{"a"}}}}};
  CHECK_THAT(refusal(endless("{\"more\": [", "["), skipping), Contains("deeper than 64 levels"));
}

TEST_CASE("an object of a million keys is read in time", "[core][json_list]") {
  std::string text = "{\"k\": 0";
  for (int i = 0; i < 1000000; ++i) text += ",\"" + std::to_string(i) + "\": 1";
  CHECK(parse_json(text + "}", "t.json").size() == 1000001);
}

}  // namespace meshplan
