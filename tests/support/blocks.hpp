// A text that comes in blocks of a size that a test chooses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/text_blocks.hpp"

namespace meshplan {

inline TextBlocks in_blocks(std::string text, std::size_t bytes) {
  return [text = std::move(text), bytes, next = std::size_t{0}]() mutable {
    const std::string_view block =
        std::string_view(text).substr(std::min(next, text.size()), bytes);
    next += block.size();
    return block;
  };
}

}  // namespace meshplan
