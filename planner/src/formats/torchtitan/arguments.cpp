#include "formats/torchtitan/arguments.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace meshplan::planner::torchtitan {
namespace {

/// At blanks outside of quotes.
std::vector<std::string> words_of(std::string_view arguments) {
  std::vector<std::string> words;
  bool open = false;
  char quote = '\0';
  for (const char c : arguments) {
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
      open = false;
    } else if (c == quote || (quote == 0 && (c == '"' || c == '\''))) {
      quote = quote == 0 ? c : '\0';
      if (!open) words.emplace_back();
      open = true;
    } else {
      if (!open) words.emplace_back();
      open = true;
      words.back() += c;
    }
  }
  if (quote != 0)
    throw ConfigError(fmt::format("--args: a quote never ends: {}", arguments.substr(0, 100)));
  return words;
}

template <class Number>
bool is_number(const std::string& word, Number& number) {
  const char* const end = word.data() + word.size();
  const auto read = std::from_chars(word.data(), end, number);
  return read.ec == std::errc() && read.ptr == end;
}

Json value_of(const std::string& word) {
  std::int64_t integer = 0;
  double fraction = 0;
  if (is_number(word, integer)) return integer;
  if (word.find_first_of("0123456789") != std::string::npos && is_number(word, fraction))
    return fraction;
  if (word == "True" || word == "true") return true;
  if (word == "False" || word == "false") return false;
  if (word == "None") return nullptr;
  return word;
}

/// "a,b": of keys that hold lists.
Json list_of(const std::vector<std::string>& words) {
  Json list = Json::array();
  for (const std::string& word : words)
    for (std::size_t begin = 0; begin <= word.size();) {
      const std::size_t end = std::min(word.find(',', begin), word.size());
      if (end > begin) list.push_back(word.substr(begin, end - begin));
      begin = end + 1;
    }
  return list;
}

void set(Json& tree, const std::string& path, Json value) {
  const std::size_t dot = path.find('.');
  const std::string section = path.substr(0, dot);
  const std::string key = path.substr(dot + 1);
  if (dot == std::string::npos || key.empty() || key.find('.') != std::string::npos)
    throw ConfigError(fmt::format("--args: --{}: expected --SECTION.KEY VALUE", path));
  if (!tree.contains(section) || !tree.at(section).is_object()) tree[section] = Json::object();
  tree[section][key] = std::move(value);
}

}  // namespace

void apply_arguments(Json& tree, std::string_view arguments) {
  const std::vector<std::string> words = words_of(arguments);
  for (std::size_t i = 0; i < words.size();) {
    std::string name = words[i++];
    std::vector<std::string> values;
    if (!name.starts_with("--") || name.size() < 3)
      throw ConfigError(
          fmt::format("--args: '{}': expected --SECTION.KEY VALUE, for example "
                      "--training.steps 10",
                      name));
    if (const std::size_t equals = name.find('='); equals != std::string::npos) {
      values.push_back(name.substr(equals + 1));
      name.resize(equals);
    }
    while (i < words.size() && !words[i].starts_with("--")) values.push_back(words[i++]);
    name.erase(0, 2);
    std::ranges::replace(name, '-', '_');
    const bool holds_list = name.ends_with(".components") || name.ends_with(".converters");
    bool turned_off = false;
    if (const std::size_t no = name.find(".no_"); values.empty() && no != std::string::npos) {
      name.erase(no + 1, 3);
      turned_off = true;
    }
    if (!holds_list && values.size() > 1)
      throw ConfigError(fmt::format("--args: --{}: '{}' is one value too many", name, values[1]));
    set(tree, name,
        holds_list       ? list_of(values)
        : values.empty() ? Json(!turned_off)
                         : value_of(values[0]));
  }
}

}  // namespace meshplan::planner::torchtitan
