#include "core/text_blocks.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"

namespace meshplan {

TextBlocks one_block(std::string_view text) {
  return [text]() mutable { return std::exchange(text, {}); };
}

void for_each_line(const TextBlocks& text, const std::string& file,
                   const std::function<void(std::string_view line, std::size_t number)>& use) {
  std::string begun;  // a line whose end is still to come
  std::size_t number = 1;
  for (std::string_view block = text(); !block.empty(); block = text()) {
    while (!block.empty()) {
      const std::size_t end = std::min(block.find('\n'), block.size());
      if (begun.size() + end > kMostTokenBytes)
        throw ConfigError(fmt::format("{}:{}: the line has more than {} bytes, the limit", file,
                                      number, kMostTokenBytes));
      if (end == block.size()) {
        begun += block;
        break;
      }
      if (begun.empty()) {
        use(block.substr(0, end), number);
      } else {
        begun += block.substr(0, end);
        use(begun, number);
        begun.clear();
      }
      ++number;
      block.remove_prefix(end + 1);
    }
  }
  if (!begun.empty()) use(begun, number);
}

}  // namespace meshplan
