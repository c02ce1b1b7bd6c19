#include "core/json_paths.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace meshplan {
namespace {

void collect_leaves(const Json& value, const std::string& path,
                    std::vector<std::pair<std::string, Json>>& leaves) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, child] : value.items())
      collect_leaves(child, path.empty() ? key : fmt::format("{}.{}", path, key), leaves);
  } else if (value.is_array() && !value.empty() && value.front().is_object()) {
    for (std::size_t i = 0; i < value.size(); ++i)
      collect_leaves(value[i], fmt::format("{}[{}]", path, i), leaves);
  } else {
    leaves.emplace_back(path, value);
  }
}

}  // namespace

std::vector<std::pair<std::string, Json>> json_leaves(const Json& root) {
  std::vector<std::pair<std::string, Json>> leaves;
  collect_leaves(root, "", leaves);
  return leaves;
}

Json::json_pointer json_pointer_of(std::string_view path) {
  std::string pointer = "/";
  for (const char c : path) {
    if (c == '.' || c == '[')
      pointer += '/';
    else if (c != ']')
      pointer += c;
  }
  return Json::json_pointer(pointer);
}

namespace {

Json words_of(const std::string& list) {
  Json words = Json::array();
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace

Json json_of_word(const std::string& word, const Json& before) {
  Json value = Json::parse(word, nullptr, /*allow_exceptions=*/false);
  if (before.is_array() && !value.is_array()) {
    Json list = Json::parse("[" + word + "]", nullptr, /*allow_exceptions=*/false);
    if (!list.is_discarded()) return list;
    if (value.is_discarded()) return words_of(word);
  }
  return value.is_discarded() || (before.is_string() && !value.is_string()) ? Json(word) : value;
}

}  // namespace meshplan
