#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan {

/// What stands between blanks (space, tab, newline).
inline std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  std::vector<std::string> words;
  for (auto begin = text.find_first_not_of(kBlanks); begin != std::string_view::npos;) {
    const auto end = std::min(text.find_first_of(kBlanks, begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

}  // namespace meshplan
