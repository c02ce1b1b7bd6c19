#include "core/json_paths.hpp"

#include <catch2/catch.hpp>

namespace meshplan {

TEST_CASE("Values are found by the paths that lead to them", "[core][json]") {
  const Json root = Json::parse(
      R"({"a": {"b": 1, "c": [1, 2]}, "list": [{"x": 1}, {"x": 2, "y": {}}], "none": []})");
  std::vector<std::string> paths;
  for (const auto& [path, value] : json_leaves(root)) {
    paths.push_back(path);
    CHECK(root.at(json_pointer_of(path)) == value);
  }
  CHECK(paths ==
        std::vector<std::string>{"a.b", "a.c", "list[0].x", "list[1].x", "list[1].y", "none"});
}

TEST_CASE("A word is read as what it stands for", "[core][json]") {
  CHECK(json_of_word("4", Json(1)) == Json(4));
  CHECK(json_of_word("true", Json(false)) == Json(true));
  CHECK(json_of_word("full", Json("none")) == Json("full"));
  CHECK(json_of_word("12", Json("none")) == Json("12"));
  CHECK(json_of_word("1,2", Json::array()) == Json::parse("[1, 2]"));
  CHECK(json_of_word("[1, 2]", Json::array()) == Json::parse("[1, 2]"));
}

}  // namespace meshplan
