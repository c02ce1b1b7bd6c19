// A text that comes block by block: a file of a gigabyte is never held as a whole.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace meshplan {

/// Gives the next block, which lasts until the next call; an empty one is the end.
using TextBlocks = std::function<std::string_view()>;

/// The longest line, or token of JSON with the space before it, of a text that comes in blocks.
constexpr std::size_t kMostTokenBytes = std::size_t{1} << 26;

/// @param text  outlives the blocks
TextBlocks one_block(std::string_view text);

/// Calls `use` with each line, without its newline, and its number from 1.
/// @throws ConfigError naming file and line for one of more than kMostTokenBytes
void for_each_line(const TextBlocks& text, const std::string& file,
                   const std::function<void(std::string_view line, std::size_t number)>& use);

}  // namespace meshplan
